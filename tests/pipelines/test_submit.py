"""A run is started once, on what was checked, and followed to its end, whatever happens on the way to KFP."""

import json
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pipelines.cli import main
from pipelines.submit import Wanted, check_given, graph_of, namespaces, read_set, submit
from pipelines.submit_follow import Follower, Pace, Pod, canceled, refuse, step_states
from pipelines.submit_graph import Graph, read_graph
from pipelines.submit_kfp import Access, Kfp, Run, Task, access
from qinglan.errors import ConfigError, Held, OutageError, TrainingError
from tests.kfp.graphs import compile_graph
from tests.kfp.stand_in import SUCCEEDS, Fault, Scene, StandIn, serving

GIVEN = {"questions": "s3://bucket/questions.xlsx"}
QUICK = Pace(first=0.005, longest=0.01, pods=0.0, settle=5.0, patience=5.0, cancel=0.1)
HTML = b"<html>Please log in</html>"


@pytest.fixture(autouse=True)
def nobody_elses_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    for name in ("KFP_ENDPOINT", "KFP_TOKEN", "KFP_TOKEN_FILE", "KFP_NAMESPACE", "KFP_UI_ENDPOINT", "SSL_CERT_FILE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return read_graph(compile_graph(tmp_path_factory.mktemp("graph") / "small.yaml"))


@pytest.fixture
def server() -> Iterator[StandIn]:
    with serving(StandIn()) as one:
        yield one


def wanted(**changes: Any) -> Wanted:
    return Wanted("qinglan-small", GIVEN, "acme", checks=False)._replace(**changes)


def started(server: StandIn, graph: Graph) -> tuple[Kfp, str]:
    kfp = Kfp(Access(server.url))
    return kfp, submit(kfp, graph, wanted(), lambda line: None).run_id


def follower(kfp: Kfp, run_id: str, pods: Any = None, **pace: float) -> tuple[Follower, list[str]]:
    said: list[str] = []
    return Follower(kfp, run_id, said.append, pods, QUICK._replace(**pace)), said


# Starting


def test_a_run_is_told_its_parameters_experiment_version_and_account(server: StandIn, small: Graph) -> None:
    made = submit(Kfp(Access(server.url)), small, wanted(name="第一次"), lambda line: None)

    [run] = server.runs.values()
    [(experiment, kept)] = server.experiments.items()
    assert (run["display_name"], run["service_account"]) == ("第一次", "pipeline-runner")
    assert run["runtime_config"] == {"parameters": GIVEN}
    assert run["experiment_id"] == experiment and kept["display_name"] == "acme"
    assert run["pipeline_version_reference"]["pipeline_version_id"] == made.version
    assert server.uploaded == [small.text]
    assert made.page == f"{server.url}/#/runs/details/{made.run_id}"


def test_the_same_bytes_are_uploaded_once(server: StandIn, small: Graph, tmp_path: Path) -> None:
    kfp = Kfp(Access(server.url))
    first, second = (submit(kfp, small, wanted(), lambda line: None) for _ in range(2))
    other = read_graph(compile_graph(tmp_path / "other.yaml", nodes=1))
    third = submit(kfp, other, wanted(), lambda line: None)

    assert (first.uploaded, second.uploaded, third.uploaded) == (True, False, True)
    assert first.version == second.version != third.version
    assert (len(server.pipelines), len(server.experiments), len(server.runs)) == (1, 1, 3)


def test_what_is_sent_is_what_was_checked(server: StandIn, tmp_path: Path) -> None:
    graph = read_graph(compile_graph(tmp_path / "small.yaml"))
    (tmp_path / "small.yaml").write_text("foo: [")

    submit(Kfp(Access(server.url)), graph, wanted(), lambda line: None)

    assert server.uploaded == [graph.text]


@pytest.mark.parametrize(
    "spoiled", [wanted(parameters={}), wanted(parameters={"questions": "q.xlsx"}), wanted(checks=True)]
)
def test_nothing_is_sent_where_something_is_missing(server: StandIn, small: Graph, spoiled: Wanted) -> None:
    with pytest.raises(ConfigError):
        submit(Kfp(Access(server.url)), small, spoiled, lambda line: None)

    assert [one for one in server.heard if not one.endswith("/healthz")] == []


def test_an_archived_experiment_is_named(server: StandIn, small: Graph) -> None:
    started(server, small)
    next(iter(server.experiments.values()))["storage_state"] = "ARCHIVED"

    with pytest.raises(ConfigError, match="Experiment acme is archived"):
        started(server, small)


@pytest.mark.parametrize("status", [0, 503])
def test_a_lost_answer_to_a_start_does_not_start_twice(server: StandIn, small: Graph, status: int) -> None:
    kfp = Kfp(Access(server.url))
    server.faults.append(Fault("/runs", status, done=True))

    made = submit(kfp, small, wanted(), lambda line: None)

    assert list(server.runs) == [made.run_id]


def test_a_start_that_nobody_knows_of_says_so(server: StandIn, small: Graph) -> None:
    kfp = Kfp(Access(server.url))
    server.faults += [Fault("/runs", done=True), Fault("/runs")]

    with pytest.raises(OutageError, match="Whether the run has started is not known: look for 'mine'"):
        submit(kfp, small, wanted(name="mine"), lambda line: None)


# Who asks, and where


def test_a_token_is_read_anew_for_each_request(small: Graph, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")
    with serving(StandIn(token="first")) as server:
        kfp = Kfp(access(server.url, {"KF_PIPELINES_SA_TOKEN_PATH": str(token)}))
        kfp.many_users()
        server.token = "second"
        token.write_text("second")
        kfp.many_users()

    assert len(server.heard) == 2


def test_behind_a_prefix_with_a_token_and_a_namespace(small: Graph) -> None:
    with serving(StandIn(token="secret", prefix="/pipeline", many_users=True)) as server:
        kfp = Kfp(
            access(f"{server.url}/", {"KFP_TOKEN": "secret", "KFP_UI_ENDPOINT": "https://kf.example/pipeline/"})
        )
        made = submit(kfp, small, wanted(namespace="team"), lambda line: None)

        assert made.page == f"https://kf.example/pipeline/#/runs/details/{made.run_id}"
        assert {one["namespace"] for one in (*server.pipelines.values(), *server.experiments.values())} == {"team"}
        with pytest.raises(ConfigError, match="has many users: give yours with --namespace"):
            submit(kfp, small, wanted(), lambda line: None)


@pytest.mark.parametrize(
    ("fault", "kind", "said"),
    [
        (Fault("", 401), ConfigError, "It wants to know who you are: set KFP_TOKEN"),
        (Fault("", 302, headers={"location": "https://login.example"}), ConfigError, "wants to know who you are"),
        (Fault("", 403, b'{"code":7,"message":"no"}'), ConfigError, "said 403 (no). You are known, and may not"),
        (Fault("", 404, HTML, "text/html"), ConfigError, "Behind a prefix it ends with that, such as /pipeline"),
        (Fault("", 200, HTML, "text/html"), ConfigError, "answers 200 with a page, not as KFP does"),
        (Fault("", 400, b'{"code":3,"message":"wrong"}'), ConfigError, "said 400 (wrong)"),
        (Fault("", 500, b'{"code":13,"message":"db"}'), OutageError, "said 500 (db). Try again in a while"),
        (Fault("", 429), OutageError, "said 429"),
        (Fault(""), OutageError, "no answer from"),
    ],
)
def test_every_refusal_says_what_to_do(server: StandIn, fault: Fault, kind: type[Exception], said: str) -> None:
    server.faults.append(fault)

    with pytest.raises(kind) as error:
        Kfp(Access(server.url)).many_users()

    assert said in str(error.value)
    assert len(server.heard) == 1  # nobody was led on to a login page


def test_a_token_that_does_not_count_is_not_shown(server: StandIn) -> None:
    server.token = "right"

    with pytest.raises(ConfigError, match="Your token does not count, or no longer") as error:
        Kfp(access(server.url, {"KFP_TOKEN": "hunter2"})).many_users()

    assert "hunter2" not in str(error.value)


def test_where_nobody_listens_is_an_outage(server: StandIn) -> None:
    with pytest.raises(OutageError, match="Is KFP up"):
        Kfp(Access("http://127.0.0.1:1")).many_users()


@pytest.mark.parametrize(
    ("endpoint", "environment", "said"),
    [
        ("", {}, "Where is KFP"),
        ("kubeflow.example.com", {}, "is no address such as"),
        ("ftp://kf", {}, "is no address such as"),
        ("https://me:secret@kf", {}, "leave name and password out"),
        ("https://kf", {"KFP_TOKEN_FILE": "/none/token"}, "/none/token: the token for KFP cannot be read"),
    ],
)
def test_a_wrong_way_to_kfp_is_explained(endpoint: str, environment: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as error:
        Kfp(access(endpoint, environment))

    assert said in str(error.value)
    assert "secret" not in str(error.value)


def test_a_certificate_counts_only_where_its_signer_is_known(tmp_path: Path) -> None:
    key, certificate = self_signed(tmp_path)
    with serving(StandIn(), tls=(key, certificate)) as server:
        assert not Kfp(access(server.url, {"SSL_CERT_FILE": str(certificate)})).many_users()
        with pytest.raises(ConfigError, match=r"does not count.*Set SSL_CERT_FILE"):
            Kfp(access(server.url, {})).many_users()


def self_signed(folder: Path) -> tuple[Path, Path]:
    from datetime import UTC, datetime, timedelta
    from ipaddress import ip_address

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(
            name, name, key.public_key(), x509.random_serial_number(), now, now + timedelta(days=1)
        )
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=True)
        .sign(key, hashes.SHA256())
    )
    secret, public = folder / "key.pem", folder / "certificate.pem"
    plain = serialization.NoEncryption()
    form = serialization.Encoding.PEM
    secret.write_bytes(key.private_bytes(form, serialization.PrivateFormat.PKCS8, plain))
    public.write_bytes(made.public_bytes(form))
    return secret, public


# Following


def test_each_change_of_a_step_is_one_line_and_kfps_own_tasks_are_none(server: StandIn, small: Graph) -> None:
    one, said = follower(*started(server, small))

    run = one.follow()

    assert run.state == "SUCCEEDED"
    assert said == ["▶ train running", "✓ train done", "✓ gate done", "✓ release done"]
    assert one.states == {"train": "SUCCEEDED", "gate": "SUCCEEDED", "release": "SUCCEEDED"}


def test_a_failed_step_is_named_with_its_message_and_its_pods_last_words(server: StandIn, small: Graph) -> None:
    server.scenes = (Scene("RUNNING", {"train": "RUNNING"}), Scene("FAILED", {"train": "FAILED"}, "child failed"))
    one, _ = follower(*started(server, small), FailedPods())

    with pytest.raises(TrainingError) as error:
        refuse(one.follow(), one.failure)

    assert "failed at train. child failed" in str(error.value)
    assert "train: pod train-1: container main ended with 1\n  | CUDA out of memory" in str(error.value)
    assert f"The page: {server.url}/#/runs/details/" in str(error.value)


class FailedPods:
    def stuck(self, run_id: str) -> list[Pod]:
        return [
            Pod("train", "train-1", "failed", "container main ended with 1"),
            Pod("gate", "gate-1", "waiting", "0/4 nodes are available"),
        ]

    def last_lines(self, pod: Pod) -> list[str]:
        return ["CUDA out of memory"]


def test_why_a_pod_waits_is_said_once(server: StandIn, small: Graph) -> None:
    one, said = follower(*started(server, small), FailedPods())

    one.follow()

    assert said.count("· gate waits: 0/4 nodes are available") == 1


def test_without_a_cluster_a_failure_says_how_to_read_the_log(server: StandIn, small: Graph) -> None:
    server.scenes = (Scene("FAILED", {"train-driver": "FAILED"}),)
    kfp, run_id = started(server, small)
    one, said = follower(kfp, run_id)

    with pytest.raises(TrainingError, match=rf"failed at train(.|\n)*kubectl logs .*pipeline/runid={run_id}"):
        refuse(one.follow(), one.failure)

    assert said == ["✗ train failed"]


def test_a_held_gate_is_a_result_and_no_success(server: StandIn, small: Graph) -> None:
    server.scenes = (Scene("SUCCEEDED", {"train": "SUCCEEDED", "gate": "SUCCEEDED", "condition-1": "SKIPPED"}),)
    one, _ = follower(*started(server, small))

    with pytest.raises(Held, match="the gate says hold"):
        refuse(one.follow(), one.failure)


@pytest.mark.parametrize(
    "fault", [Fault("/runs/"), Fault("/runs/", 503), Fault("/runs/", 500, b"{}"), Fault("/versions/", 502)]
)
def test_an_answer_that_is_lost_while_following_is_asked_for_again(
    server: StandIn, small: Graph, fault: Fault
) -> None:
    one, said = follower(*started(server, small))
    server.faults += [fault, fault]

    assert one.follow().state == "SUCCEEDED"

    assert len([line for line in said if line.endswith("Asking again.")]) == 1
    assert said.count("KFP answers again.") == 1


def test_kfp_that_stays_away_is_an_outage_and_the_run_goes_on(small: Graph) -> None:
    with serving(StandIn()) as server:
        kfp, run_id = started(server, small)
    one, _ = follower(kfp, run_id, patience=0.05)

    with pytest.raises(OutageError, match=f"The run goes on without you: `qinglan follow {run_id}`"):
        one.follow()


def test_a_run_that_is_not_there_is_named(server: StandIn) -> None:
    one, _ = follower(Kfp(Access(server.url)), "nobody")

    with pytest.raises(ConfigError, match="nobody not found"):
        one.follow()


def test_a_run_whose_graph_is_gone_is_followed_all_the_same(server: StandIn, small: Graph) -> None:
    one, said = follower(*started(server, small))
    server.versions.clear()

    assert one.follow().state == "SUCCEEDED"
    assert said == ["▶ train running", "✓ train done", "✓ gate done", "✓ release done"]


def test_canceling_ends_a_run(server: StandIn, small: Graph) -> None:
    server.scenes = (Scene("RUNNING", {"train": "RUNNING"}),)
    one, said = follower(*started(server, small))

    run = one.cancel()

    assert run.state == "CANCELED"
    assert canceled(run, "page").endswith(": canceled")
    assert said == [f"{run.name}: cancel asked for", "▶ train running"]


def test_a_run_that_stays_canceling_is_said_to_and_not_waited_for(server: StandIn, small: Graph) -> None:
    server.scenes, server.ends_canceled = (Scene("RUNNING"),), False
    one, _ = follower(*started(server, small))

    run = one.cancel()

    assert run.state == "CANCELING"
    assert "KFP has been told, and is still ending it" in canceled(run, "page")
    one.cancel()
    assert len([call for call in server.heard if call.endswith(":terminate")]) == 1


def test_a_run_that_is_over_is_not_canceled(server: StandIn, small: Graph) -> None:
    server.scenes = (Scene("SUCCEEDED"),)
    one, _ = follower(*started(server, small))

    assert one.cancel().state == "SUCCEEDED"
    assert not [call for call in server.heard if call.endswith(":terminate")]


def test_a_step_in_a_loop_is_as_its_worst_part() -> None:
    tasks = tuple(Task("train", state) for state in ("SUCCEEDED", "FAILED", "RUNNING"))
    unknown = Task("gate", "TELEPORTED")

    states = step_states(Run("1", "x", "RUNNING", "", (*tasks, unknown)), frozenset({"train", "gate"}))

    assert states == {"train": "FAILED"}


# The commands


@pytest.fixture
def qinglan(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., tuple[int, str, str]]]:
    before = signal.getsignal(signal.SIGTERM)

    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["qinglan", *words])
        with pytest.raises(SystemExit) as end:
            main()
        out, err = capsys.readouterr()
        return int(end.value.code or 0), out, err

    yield run
    signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize(
    ("scene", "code"),
    [
        (SUCCEEDS[-1], 0),
        (Scene("FAILED", {"train": "FAILED"}), 6),
        (Scene("CANCELED"), 6),
        (Scene("SUCCEEDED", {"condition-1": "SKIPPED"}), 7),
    ],
)
def test_the_runs_end_is_the_exit_code(server: StandIn, small: Graph, qinglan: Any, scene: Scene, code: int) -> None:
    server.scenes = (scene,)
    words = (str(small.path), "--questions", GIVEN["questions"], "--set", "rounds=3", "--endpoint", server.url)

    ended, out, _ = qinglan("submit", *words, "--skip-checks")

    [run_id] = server.runs
    assert ended == code
    assert f"page: {server.url}/#/runs/details/{run_id}" in out
    assert server.runs[run_id]["runtime_config"]["parameters"] == {**GIVEN, "rounds": 3}


def test_json_is_all_that_stdout_gets(server: StandIn, small: Graph, qinglan: Any) -> None:
    server.scenes = (Scene("FAILED", {"train": "FAILED"}),)
    words = (str(small.path), "--questions", GIVEN["questions"], "--endpoint", server.url, "--skip-checks", "--json")

    code, out, err = qinglan("submit", *words)

    [run_id] = server.runs
    read = json.loads(out)
    assert (code, read["run_id"], read["state"], read["steps"]) == (6, run_id, "FAILED", {"train": "FAILED"})
    assert "✗ train failed" in err


def test_a_run_can_be_left_alone_followed_and_canceled(server: StandIn, small: Graph, qinglan: Any) -> None:
    server.scenes = (Scene("RUNNING"), Scene("SUCCEEDED", {"train": "SUCCEEDED"}))
    words = (str(small.path), "--questions", GIVEN["questions"], "--endpoint", server.url, "--skip-checks")
    code, out, _ = qinglan("submit", *words, "--no-follow")
    [run_id] = server.runs

    assert (code, f"qinglan follow {run_id}" in out, server.looks[run_id]) == (0, True, 0)
    assert qinglan("follow", run_id, "--endpoint", server.url)[0] == 0
    server.scenes = (Scene("CANCELED"),)
    assert qinglan("cancel", run_id, "--endpoint", server.url)[:2] == (
        0,
        f"{server.runs[run_id]['display_name']}: canceled\n",
    )


def test_what_cannot_be_submitted_is_refused_before_kfp_hears_of_it(
    server: StandIn, qinglan: Any, tmp_path: Path
) -> None:
    (tmp_path / "bad.yaml").write_text("foo: [")

    code, _, err = qinglan("submit", str(tmp_path / "bad.yaml"), "--endpoint", server.url)

    assert (code, server.heard) == (2, [])
    assert "is no YAML" in err and "Nothing was sent" in err


def test_without_a_cluster_to_look_at_nothing_is_sent(server: StandIn, small: Graph, qinglan: Any) -> None:
    code, _, err = qinglan("submit", str(small.path), "--questions", GIVEN["questions"], "--endpoint", server.url)

    assert (code, server.uploaded) == (2, [])
    assert "KUBECONFIG" in err and "--skip-checks" in err


def test_kfp_that_is_away_is_exit_code_4(small: Graph, qinglan: Any) -> None:
    words = (str(small.path), "--questions", GIVEN["questions"], "--endpoint", "http://127.0.0.1:1")

    assert qinglan("submit", *words)[0] == 4


@pytest.mark.parametrize(
    ("line", "tenant", "profile", "said"),
    [
        ("teleport", "", "", "No line 'teleport'. There are: rewriter, style"),
        ("rewriter", "", "gpt", "whose? Give a tenant"),
        ("style", "acme", "", "is no tenant"),
        ("x.yaml", "acme", "", "is compiled: tenant"),
    ],
)
def test_a_line_that_cannot_be_compiled_is_explained(
    tmp_path: Path, line: str, tenant: str, profile: str, said: str
) -> None:
    with pytest.raises(ConfigError) as error:
        graph_of(line, tenant, profile, "", (), tmp_path)

    assert said in str(error.value)


def test_a_file_of_this_machine_is_no_input_of_a_cluster() -> None:
    with pytest.raises(ConfigError, match=r"--knowledge-base kb\.jsonl: a step on the cluster cannot read"):
        check_given({"knowledge_base": "kb.jsonl"})
    with pytest.raises(ConfigError, match="write it as NAME=VALUE"):
        read_set(["questions"])


def test_pods_are_where_kfp_puts_them() -> None:
    assert namespaces(False, "") == ("", "kubeflow")
    assert namespaces(False, "kfp") == ("", "kfp")
    assert namespaces(True, "team") == ("team", "team")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "words", "code", "terminated", "said"),
    [
        (signal.SIGINT, (), 130, 0, "The run goes on. Follow it: qinglan follow"),
        (signal.SIGTERM, (), 143, 0, "The run goes on"),
        (signal.SIGINT, ("--cancel-on-interrupt",), 130, 1, "canceled"),
        (signal.SIGTERM, ("--cancel-on-interrupt",), 143, 1, "canceled"),
    ],
)
def test_whoever_stops_following_leaves_the_run_or_cancels_it(
    server: StandIn, small: Graph, number: int, words: tuple[str, ...], code: int, terminated: int, said: str
) -> None:
    import subprocess

    server.scenes = (Scene("RUNNING", {"train": "RUNNING"}),)
    _, run_id = started(server, small)
    command = [sys.executable, "-c", "from pipelines.cli import main; main()", "follow", run_id]
    process = subprocess.Popen([*command, "--endpoint", server.url, *words], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    while "train running" not in process.stdout.readline():
        assert process.poll() is None
    time.sleep(0.1)
    process.send_signal(number)
    out, _ = process.communicate(timeout=60)

    assert process.returncode == code
    assert len([call for call in server.heard if call.endswith(":terminate")]) == terminated
    assert said in out
