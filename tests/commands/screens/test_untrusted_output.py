"""Nothing untrusted paints the terminal: every command is run on one, and its screen is read back.

Hostile text comes from where it would come: a statement, a file's name, a log, a server, a model, a profile.
"""

import json
import re
from pathlib import Path

import orjson
import pytest
import yaml

from pipelines.checks.cluster.graph import Graph
from pipelines.execute.rundir import RunDir, write_json
from qinglan.files.digests import digest
from qinglan.lineage.signing.keys import KEYS_VARIABLE
from qinglan.lineage.signing.statement import ArtifactRef
from qinglan.lineage.signing.trust import load_trust, save_trust
from qinglan.terminal import visible
from tests.commands.rollout.test_view import ANALYSED, rollout
from tests.kfp.stand_in import Scene, StandIn
from tests.pipelines.submit.conftest import started
from tests.releases.lineage_release import write_release
from tests.releases.lineage_world import Keys, make_keys, sealed, sha, write_run
from tests.screens.terminal_screen import ALL, ATTACKS, code_on_terminal, faults, on_terminal
from tests.servers.echo_servers import Reply, Scripted, running

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forks")]
ALTERED = 8
ON_DISK = ALL.replace("/", "|")
"""A file may have any name but one with a slash."""


@pytest.fixture
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Keys:
    keys = make_keys(tmp_path / "keys")
    save_trust(tmp_path / "keys" / "trust.yaml", keys.policy)
    monkeypatch.setenv(KEYS_VARIABLE, str(tmp_path / "keys"))
    monkeypatch.setenv("QINGLAN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    return keys


def hostile_statements(folder: Path, product: str) -> None:
    """Unsigned, as anybody may leave them who can write a file: a chain of makers, one for each attack."""
    for number, attack in enumerate(ATTACKS.values()):
        used = ArtifactRef(attack, sha(f"hostile {number}"), "", {"rows": attack})
        statement = sealed(None, attack, [ArtifactRef(attack, product)], [used], facts={"verdict": attack})
        body = json.loads(statement)
        body["signatures"] = [{"keyid": attack, "sig": "AAAA"}]
        (folder / f"{number}-x.dsse.json").write_text(json.dumps(body))
        product = used.digest


def test_an_unsigned_statement_in_a_run_cannot_make_its_audit_look_intact(keys: Keys, tmp_path: Path) -> None:
    run = write_run(tmp_path / "runs" / "run", keys)
    model = run / "artifacts/line-1/sft/model"
    (model / "model.safetensors").write_bytes(b"other weights")
    hostile_statements(run / "records", digest(model))
    hostile_statements(run / "artifacts/line-1/sft/lineage", digest(model))

    screen = on_terminal("audit", run, cwd=tmp_path)

    assert (screen.code, faults(screen)) == (ALTERED, [])
    assert re.fullmatch(r".*run ALTERED", screen.lines[0]), "the verdict stands where it was printed"
    assert screen.has_line("qinglan: "), "and the error behind all the rest"
    assert all(visible(attack) in screen.raw for attack in ATTACKS.values()), "each is shown, as codes"
    for words in (("--bytes",), ("--json",)):
        assert faults(on_terminal("audit", run, *words, cwd=tmp_path)) == []
    assert faults(on_terminal("audit", model, "--which-models", "--files", run, cwd=tmp_path)) == []


def test_an_unsigned_statement_in_a_release_cannot_make_its_audit_look_intact(keys: Keys, tmp_path: Path) -> None:
    release = write_release(tmp_path / "release", keys)
    other = write_release(tmp_path / "other", keys, weights="other")
    (release / "lineage" / "ppo.dsse.json").unlink()
    hostile_statements(release / "lineage", digest(release / "model"))
    figures = json.loads((release / "evaluation.json").read_text())
    figures["agreement"] = {"judge": ALL, "examiner": ALL}
    (release / "evaluation.json").write_text(json.dumps(figures))

    screen = on_terminal("audit", release, cwd=tmp_path)

    assert (screen.code, faults(screen)) == (ALTERED, [])
    assert "ALTERED" in screen.lines[0] and screen.has_line("✗ altered")
    assert all(visible(attack) in screen.raw for attack in ATTACKS.values()), "each is shown, as codes"
    for words in (("--why",), ("--diff", other)):
        screen_item = on_terminal("audit", release, *words, cwd=tmp_path)
        assert (screen_item.code, faults(screen_item)) == (ALTERED, [])


def test_json_reads_back_as_it_was(keys: Keys, tmp_path: Path) -> None:
    run = write_run(tmp_path / "runs" / "run", keys)
    (run / "artifacts/line-1/sft/model/model.safetensors").write_bytes(b"other weights")
    hostile_statements(run / "records", digest(run / "artifacts/line-1/sft/model"))

    screen = on_terminal("audit", run, "--json", cwd=tmp_path)

    assert faults(screen) == []
    body = json.loads(screen.raw.splitlines()[0])
    assert set(ATTACKS.values()) <= {part["name"] for step in body["steps"] for part in step["statement"]["made"]}


def test_a_files_name_is_shown_and_not_obeyed(tmp_path: Path) -> None:
    for number, attack in enumerate(ATTACKS.values()):
        if number % 6 == 0:  # a name may have 255 bytes
            name = "_".join(list(ATTACKS.values())[number : number + 6]).replace("\b" * 400, "\b" * 9)
            name = name.replace("/", "|").encode()[:240].decode(errors="ignore") + ".xlsx"
            (tmp_path / name).write_bytes(b"no spreadsheet")

            screen = on_terminal("plan", "fivedoctors", "--questions", name, cwd=tmp_path)

            # 2, not the sheet's 3: the knowledge base is missing too, and both are named
            assert (screen.code, faults(screen)) == (2, []), attack
            assert screen.has_line("qinglan: ")


def test_a_name_that_is_no_text_is_shown_as_its_bytes(tmp_path: Path) -> None:
    screen = on_terminal("plan", "fivedoctors", "--questions", "a\udcff\udc9b2Jb.xlsx", cwd=tmp_path)

    assert (screen.code, faults(screen)) == (2, [])
    assert r"a\udcff\udc9b2Jb.xlsx" in screen.raw


def test_a_plan_shows_what_a_profile_says(tmp_path: Path) -> None:
    rows = '{"question": "怎么吃", "划分": "train"}\n'
    (tmp_path / "q.jsonl").write_text(rows, encoding="utf-8")
    (tmp_path / "kb.jsonl").write_text('{"id": "k1", "title": "虾青素", "content": "一天一粒"}\n', encoding="utf-8")
    price = {"input": 1.0, "cached_input": 0.1, "output": 2.0, "as_of": "2020-01-01"}
    model = {"base_url": "https://api.openai.com/v1", "model": ALL, "api_key_env": "NONE", "price": price}
    gateway = {"teacher": model, "judge": model, "examiner": model, "rag": {"base_url": "https://rag.example"}}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump({"tenant_id": "fivedoctors", "gateway": gateway}))
    inputs = ("--questions", "q.jsonl", "--knowledge-base", "kb.jsonl", "--profile", "mine.yaml")

    screen = on_terminal("plan", "fivedoctors", *inputs, cwd=tmp_path)

    assert (screen.code, faults(screen)) == (2, [])
    assert r"\x1b[2J" in screen.raw


def test_the_keys_are_listed_with_what_a_policy_says_of_them(keys: Keys, tmp_path: Path) -> None:
    path = tmp_path / "keys" / "trust.yaml"
    policy = yaml.safe_load(path.read_text())
    for key in policy["keys"].values():
        key["tenants"] = [ALL]
        key["revoked"] = {"at": "2026-01-06T00:00:00Z", "reason": ALL}
    path.write_text(yaml.safe_dump(policy))
    load_trust(path)

    screen = on_terminal("keys", "list", cwd=tmp_path)

    assert (screen.code, faults(screen)) == (0, [])
    assert "[red]red[/red]" in screen.raw, "markup is text"


def test_a_failed_step_and_its_log_are_shown_behind_marks(tmp_path: Path) -> None:
    """The child that executes a graph ends badly; its record and its log hold what a teacher or a pod has said."""
    code = f"""
import sys
from pathlib import Path
import pipelines.execute.execution as executing
from commands import cli
from pipelines.lines.rewriter import REWRITER
from pipelines.execute.rundir import RunDir
executing._start_child = lambda *_: executing.subprocess.Popen([sys.executable, "-c", {WORK!r}])
executing.make_room = None
sys.argv = ["qinglan"]
cli.run_app = lambda app: executing.execute(RunDir(Path(".")), REWRITER, REWRITER.stages, quiet=False)
cli.main()
"""
    run = RunDir(tmp_path)
    run.logs.mkdir()
    (run.logs / "run.log").write_text(f"[generate] {ALL}\n", encoding="utf-8")
    times = {"started": "2026-01-01T00:00:00.000+00:00", "ended": "2026-01-01T00:00:02.500+00:00"}
    done = {"status": "done", "facts": {"rows": 3, "verdict": ALL}, **times}
    for failure in (
        {"message": ALL, "explained": True, "exit_code": 6, "traceback": ""},
        {"message": "", "explained": False, "exit_code": 1, "traceback": f"Traceback\n  File x\nValueError: {ALL}"},
        None,
    ):
        write_json(run.records / "generate.json", done)
        if failure:
            write_json(run.records / "validate.json", {"status": "failed", "failure": failure, **times})
        else:
            (run.records / "validate.json").unlink()
        screen = code_on_terminal(code, tmp_path)

        assert (screen.code, faults(screen)) == (failure["exit_code"] if failure else 1, [])
        assert screen.has_line("Run the same command again when that is mended"), "our own lines are lines"
        assert r"\x1b]0;owned" in screen.raw


WORK = "import time; time.sleep(1); raise SystemExit(1)"


def test_an_unexpected_error_is_shown_behind_marks(tmp_path: Path) -> None:
    (tmp_path / "evaluation.json").write_text("{}")
    code = f"""
import sys, warnings, logging
from commands import cli
def fail(app):
    warnings.warn({ALL!r})
    logging.getLogger("library").warning({ALL!r})
    raise ValueError({ALL!r})
cli.run_app = fail
sys.argv = ["qinglan"]
cli.main()
"""
    screen = code_on_terminal(code, tmp_path)

    assert (screen.code, faults(screen)) == (1, [])
    assert screen.has_line("  | Traceback (most recent call last)") and r"ValueError: \x1b[2J" in screen.raw


def test_a_progress_bar_shows_what_is_noted_and_obeys_nothing(tmp_path: Path) -> None:
    code = f"""
from qinglan.terminal.progress import progress, step_progress
with progress("generate", 2) as tick:
    tick({ALL!r})
    tick({ALL!r})
with step_progress("sft") as show:
    show(2, 2, {ALL!r})
"""
    screen = code_on_terminal(code, tmp_path)

    assert (screen.code, faults(screen)) == (0, [])
    assert "[red]red[/red]" in screen.raw


def test_escape_codes_of_a_cluster_run_are_shown_and_not_obeyed(
    server: StandIn, small: Graph, keys: Keys, tmp_path: Path
) -> None:
    server.scenes = (Scene("RUNNING", {"train": "RUNNING"}), Scene("FAILED", {ALL: "FAILED", "train": "FAILED"}, ALL))
    _, run_id = started(server, small)
    server.runs[run_id]["display_name"] = ALL
    server.versions.clear()  # then its steps' names come with the run

    followed = on_terminal("follow", run_id, "--endpoint", server.url, cwd=tmp_path)
    server.scenes = server.scenes[-1:]
    canceled = on_terminal("cancel", run_id, "--endpoint", server.url, cwd=tmp_path)

    assert (followed.code, faults(followed)) == (6, [])
    assert followed.has_line("✗ train failed") and followed.has_line("The page: ")
    assert (canceled.code, faults(canceled)) == (0, [])


def kubeconfig(folder: Path, host: str) -> str:
    path = folder / "kubeconfig"
    path.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: a\nusers: [{name: a, user: {}}]\n"
        f"clusters: [{{name: a, cluster: {{server: '{host}'}}}}]\n"
        "contexts: [{name: a, context: {cluster: a, user: a, namespace: team}}]\n"
    )
    return str(path)


def test_escape_codes_of_a_rollout_are_shown_and_not_obeyed(keys: Keys, tmp_path: Path) -> None:
    hostile = rollout(1, ANALYSED.model_copy(update={"reasons": (ALL, ALL)}))
    hostile["metadata"] |= {"namespace": "team", "creationTimestamp": ALL}
    hostile["spec"]["run"] = ALL
    hostile["status"]["history"] = [
        {"at": ALL[:40], "phase": "Analyse", "action": "blind", "why": ALL, "figures": []}
    ]
    with running(Scripted(Reply(200, orjson.dumps({"items": [hostile]})))) as host:
        settings = {"KUBECONFIG": kubeconfig(tmp_path, host)}
        shown = [
            on_terminal("rollout", *words, cwd=tmp_path, **settings)
            for words in (["status"], ["status", "rewriter-1"], ["history", "rewriter-1"], ["status", "--json"])
        ]

    for screen in shown:
        assert (screen.code, faults(screen)) == (0, [])
    assert shown[0].has_line("rewriter-1") and shown[1].has_line("reasons:")


def test_escape_codes_of_a_live_service_are_shown_and_not_obeyed(keys: Keys, tmp_path: Path) -> None:
    service = {
        "metadata": {"name": "rewriter", "namespace": "team"}, "status": {}, "items": [],
        "spec": {"predictor": {"model": {"storageUri": ALL}}},
    }  # fmt: skip
    with running(Scripted(Reply(200, orjson.dumps(service)))) as host:
        screen = on_terminal(
            "audit", "rewriter", "--live", cwd=tmp_path, KUBECONFIG=kubeconfig(tmp_path, host), QINGLAN_STORE="store"
        )

    assert (screen.code, faults(screen)) == (ALTERED, [])
    assert screen.lines[0] == "isvc:team/rewriter"


def test_a_report_in_markdown_opens_no_link_and_obeys_no_entity(tmp_path: Path) -> None:
    code = f"""
from qinglan.terminal.console import Console, markdown
from qinglan.terminal import visible
from qinglan.evaluation.pages.report import markdown_table
table = markdown_table(["", "top1"], [[{ALL!r}, "1"]])
Console().print(markdown("**Promote**\\n\\n" + table + "\\n\\n- " + visible({ALL!r})))
"""
    screen = code_on_terminal(code, tmp_path)

    assert (screen.code, faults(screen)) == (0, [])
    assert "Promote" in screen.raw
