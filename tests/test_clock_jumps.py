"""A clock is set hours back or forward: nothing is lost, paid twice, waited for without end, or promoted."""

import ast
import re
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

from components.release.register.config import RegisterConfig
from components.release.register.stage import register
from qinglan import clock
from qinglan.http.http_client import retry_after
from qinglan.jobs.cluster.follower import Follower, FollowTimeouts, ProgressReporter
from qinglan.jobs.cluster.pod_log import PodLog
from qinglan.jobs.cluster.snapshot import JobSnapshot
from qinglan.kubernetes.client import Api
from qinglan.lineage.auditing.audit import audit, next_step
from qinglan.lineage.auditing.deploy_gate import may_deploy
from qinglan.lineage.signing import trust
from qinglan.lineage.signing.dsse import ENVELOPE_SUFFIX, IN_TOTO, sign_envelope
from qinglan.lineage.signing.findings import GRAVE, Finding
from qinglan.lineage.signing.keys import KEYS_VARIABLE, load_signer, make_key
from qinglan.lineage.signing.statement import Statement, to_payload
from qinglan.lineage.signing.trust import TRUST_FILE, ensure_keys, load_trust, rotate_key
from qinglan.lineage.steps import step_clock
from qinglan.lineage.steps.record import recorded
from qinglan.lineage.trace.evidence import FileEvidence
from qinglan.lineage.trace.walk import findings_of, walk
from qinglan.store import open_store
from serving.rollout.canary_analysis import describe_harm, missing_for_check
from serving.rollout.cluster.evidence import PrometheusEvidence
from serving.rollout.decide import BLIND_SECONDS
from serving.rollout.ports import Window
from serving.rollout.sequential import Count, HarmPeriod
from serving.rollout.shadow.payload_log import HOURS_KNOWN, PayloadLogReader
from serving.rollout.spec import Check
from tests.lint.syntax_trees import nodes_of, parsed
from tests.qinglan.jobs.cluster.job_objects import HOURS as JOB_HOURS
from tests.qinglan.jobs.cluster.job_objects import MADE_AT, job, pod, watch
from tests.releases.kfp_artifacts import File
from tests.releases.registered_release import NAME, make_inputs, tiny_weights, use_keys
from tests.releases.whole_release import make_whole_release
from tests.serving.rollout.test_decide import decided, passing, served, state, window

REPOSITORY = Path(__file__).parents[1]
NOW = 1_800_000_000.0
HOURS = 3


class SetClock(datetime):
    """The machine's clock, set wrong by so much."""

    wrong = timedelta()

    @classmethod
    def now(cls, tz: Any = None) -> "SetClock":
        return cls.fromtimestamp(time.time(), tz) + cls.wrong


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Set the clock of steps so many hours wrong."""
    monkeypatch.setattr(step_clock, "datetime", SetClock)
    return lambda hours: monkeypatch.setattr(SetClock, "wrong", timedelta(hours=hours))


JUMPS = [(0, 0, -3, -3), (0, -3, -3, -3), (0, 3, 3, 0), (3, 0, 0, 0), (3, 3, -3, 0), (0, 0, 0, 3)]
"""Hours by which the clock is wrong when the first step begins and ends, and when the second one does."""


@pytest.mark.parametrize("hours", JUMPS)
def test_steps_stay_in_their_order_and_are_audited(
    hours: tuple[float, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: Callable[[float], None]
) -> None:
    """Else the audit calls a step altered, for good: it began before what it used was made."""
    ensure_keys(tmp_path / "keys")
    monkeypatch.setenv(KEYS_VARIABLE, str(tmp_path / "keys"))
    (tmp_path / "questions").write_text("问题")
    files = {name: File(str(tmp_path / name)) for name in ("questions", "rewrites", "model", "first", "second")}
    steps = (("generate", "questions", "rewrites", "first", None), ("sft", "rewrites", "model", "second", "first"))
    for number, (stage, source, output, lineage, before) in enumerate(steps):
        machine(hours[2 * number])
        inputs, outputs = {source: files[source]}, {output: files[output]}
        with recorded(stage, inputs, outputs, {}, files[lineage], files[before] if before else None):
            Path(files[output].path).write_text(output)
            machine(hours[2 * number + 1])
    later = datetime.now(UTC) + timedelta(hours=HOURS, minutes=1)
    policy = load_trust(tmp_path / "keys" / TRUST_FILE)

    graph = walk([files["model"].metadata["sha256"]], FileEvidence(tmp_path), policy, "", now=later)

    assert len(graph.steps) == 2
    assert [str(finding) for finding in findings_of(graph) if finding.state in GRAVE] == []


@pytest.mark.parametrize("policy", ["policy", "keys alone"])
@pytest.mark.parametrize("signer", ["nobody", "stranger", "builder", "releaser"])
def test_only_steps_whose_signature_is_proven_set_the_order(
    signer: str, policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever can lay a file among the statements would date all that follow: they would never count."""
    keys = use_keys(tmp_path / "keys", monkeypatch)
    make_key(tmp_path / "stranger" / "builder.pem")
    signers = {
        "nobody": [], "stranger": [load_signer("builder", tmp_path / "stranger")],
        "builder": [load_signer("builder")], "releaser": [load_signer("releaser")],
    }  # fmt: skip
    late = datetime.now(UTC) + timedelta(days=9)
    stage = "release" if signer == "releaser" else "sft"
    statement = Statement(stage, (), (), {}, {}, "", late.isoformat(), late.isoformat(), {})
    (tmp_path / "lineage").mkdir()
    (tmp_path / "lineage" / f"sft{ENVELOPE_SUFFIX}").write_bytes(
        sign_envelope(to_payload(statement), IN_TOTO, signers[signer])
    )
    if policy == "keys alone":
        (keys / TRUST_FILE).unlink()

    began = step_clock.step_clock(load_signer("builder"), tmp_path / "lineage").began

    assert (began >= late) == (signer in ("builder", "releaser"))


@pytest.mark.parametrize("microseconds", [0, 1, 999, 1000, 123_456, 999_999])
def test_a_key_whose_beginning_was_written_by_hand_counts_for_what_it_signs_first(
    microseconds: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Statements have milliseconds: cut, the time of a step would lie before its key's own beginning."""
    keys = use_keys(tmp_path / "keys", monkeypatch)
    policy, signer = load_trust(keys / TRUST_FILE), load_signer("builder")
    since = datetime(2090, 1, 1, 8, 0, 0, microseconds, UTC)
    by_hand = policy.model_copy(
        update={"keys": {**policy.keys, signer.id: policy.keys[signer.id].model_copy(update={"since": since})}}
    )
    trust.save_trust(keys / TRUST_FILE, by_hand)

    clock = step_clock.step_clock(signer, None)

    at = datetime.fromisoformat(clock.started)
    assert by_hand.fault(signer.id, "builder", "fivedoctors", at) == ""
    assert at - since < timedelta(milliseconds=1)
    assert clock.started <= clock.now()


def test_a_foreign_key_that_cannot_be_loaded_ends_no_step_that_has_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = use_keys(tmp_path / "keys", monkeypatch)
    (keys / TRUST_FILE).unlink()
    (keys / "releaser.pem").write_text("no key")

    assert step_clock.step_clock(load_signer("builder"), None).began <= datetime.now(UTC)


@pytest.mark.slow
def test_a_run_whose_clock_was_ahead_and_then_corrected_is_released_and_counts_once_its_time_has_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: Callable[[float], None]
) -> None:
    """The training is done: it need not be repeated, and no key is to blame."""
    use_keys(tmp_path / "keys", monkeypatch)
    policy = load_trust(tmp_path / "keys" / TRUST_FILE)
    machine(HOURS)
    inputs = make_inputs(tmp_path, tiny_weights(tmp_path / "rl_model"))
    machine(0)

    register(inputs, tmp_path / "release", RegisterConfig(name=NAME))
    early = audit(str(tmp_path / "release"), policy)
    later = audit(str(tmp_path / "release"), policy, now=datetime.now(UTC) + timedelta(hours=HOURS, minutes=1))

    [dates] = [finding for finding in early.findings if finding.state in GRAVE]
    assert dates.what == "dates" and "up to 3.0 h in the future" in dates.why
    [time_named] = re.findall(r"they are trusted from (\S+ \S+Z) on", dates.why)
    assert next_step(early) == (
        f"Do not deploy it before {time_named}: its bytes and signatures are right, its dates are not."
    )
    incomplete = early._replace(findings=(*early.findings, Finding("chats", "missing", "gone")))
    assert next_step(incomplete).startswith(f"Do not deploy it before {time_named}: its dates are not right. Name")
    assert [str(finding) for finding in later.findings if finding.state in GRAVE] == []


@pytest.mark.slow
def test_a_deployment_that_waits_for_its_date_says_so_and_the_same_steps_under_the_right_clock_are_deployed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: Callable[[float], None]
) -> None:
    keys = use_keys(tmp_path / "keys", monkeypatch)
    machine(HOURS)
    ahead = make_whole_release(tmp_path / "ahead", keys)
    machine(0)
    right = make_whole_release(tmp_path / "right", keys)

    [reason] = may_deploy(ahead.folder, ahead.policy, NAME).reasons

    assert "dated up to 3.0 h in the future" in reason and "run the same command again" in reason
    assert may_deploy(right.folder, right.policy, NAME).allowed


@pytest.mark.slow
def test_the_finding_names_the_rotation_without_which_keys_of_the_wrong_clock_date_every_step_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: Callable[[float], None]
) -> None:
    """A first run makes its keys itself, and no step is dated before its key."""
    right_now = trust._now
    with monkeypatch.context() as ahead:
        ahead.setattr(trust, "_now", lambda: right_now() + timedelta(hours=HOURS))
        keys = use_keys(tmp_path / "keys", monkeypatch)
    machine(HOURS)
    first = make_whole_release(tmp_path / "first", keys)
    machine(0)
    again = make_whole_release(tmp_path / "again", keys)
    [reason] = may_deploy(again.folder, again.policy, NAME).reasons

    for role in re.findall(r"`qinglan keys rotate (\w+)`", reason):
        rotate_key(keys, role)
    rotated = make_whole_release(tmp_path / "rotated", keys)

    assert not may_deploy(first.folder, first.policy, NAME).allowed
    assert may_deploy(rotated.folder, rotated.policy, NAME).allowed


@pytest.mark.parametrize("hours", [-HOURS, HOURS])
def test_what_a_process_measures_by_the_time_of_day_does_not_jump(
    hours: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, right = clock.steady_time(), time.time()
    monkeypatch.setattr(time, "time", lambda: right + hours * 3600)

    assert 0 <= clock.steady_time() - before < 60
    assert abs(clock.steady_time() - right) < 60


class DatedApiServer(BaseHTTPRequestHandler):
    """Answers each request with this date, whatever the machine's clock says."""

    date = 0.0

    def date_time_string(self, timestamp: float | None = None) -> str:
        return formatdate(self.date, usegmt=True)

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture
def dated_api(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[float], Api]]:
    settings = client.Configuration()
    with ThreadingHTTPServer(("127.0.0.1", 0), DatedApiServer) as server:
        settings.host = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

        def connect_at(date: float) -> Api:
            monkeypatch.setattr(DatedApiServer, "date", date)
            return Api(client.ApiClient(settings), "n")

        yield connect_at
        server.shutdown()


class FixedWatch:
    """A watch that knows one running job."""

    def trouble(self) -> None: ...

    def snapshot(self) -> JobSnapshot:
        return watch(job(), pod())


@pytest.mark.parametrize(("age", "phase"), [(60.0, "running"), (JOB_HOURS * 3600 + 60.0, "hopeless")])
def test_a_jobs_deadline_is_kept_by_the_api_servers_clock(
    age: float, phase: str, dated_api: Callable[[float], Api]
) -> None:
    """A step that starts under a clock hours ahead would end a job that has time; here it is months."""
    api = dated_api(MADE_AT + age)
    api.get("pytorchjobs", "sft-0a")
    lines: list[str] = []
    log = PodLog(api, Path("unused"), lines.append, lines.append)
    log.start = lambda pod: None  # type: ignore[method-assign]
    follower = Follower(api, FixedWatch(), log, ProgressReporter("sft-0a", lines.append, 600.0), FollowTimeouts())  # type: ignore[arg-type]

    assert follower._read(job()).phase == phase


def test_without_a_date_the_machines_clock_is_taken() -> None:
    assert abs(Api(None, "n").server_time() - time.time()) < 60


@pytest.mark.parametrize("wrong", [-HOURS * 3600.0, 0.0, HOURS * 3600.0])
def test_a_date_to_wait_for_is_compared_with_the_services_own_clock(wrong: float) -> None:
    """Else a run waits for hours, or sends without a pause."""
    headers = {"date": formatdate(NOW, usegmt=True), "retry-after": formatdate(NOW + 30, usegmt=True)}

    assert retry_after(headers, NOW + wrong) == 30.0


@pytest.mark.parametrize("leap", [-HOURS * 3600.0, HOURS * 3600.0])
def test_a_canary_does_not_earn_its_time_by_a_leap_of_the_measurements_clock(leap: float) -> None:
    young = passing(step_seconds=0.0)

    result = decided(young, served(), measured=window(until=1000.0 + leap))

    assert result.desired is None and result.state.step_seconds <= 120


@pytest.mark.parametrize("leap", [-HOURS * 3600.0, HOURS * 3600.0])
def test_a_check_that_is_measured_no_more_is_stale_whatever_the_clock_does(leap: float) -> None:
    score = passing().evidence[0]
    assert missing_for_check(score, score.until) == []

    assert "nothing measured for 10,800 s" in missing_for_check(score, score.until + leap)[0]


def test_a_canary_is_judged_on_after_the_clock_of_the_measurements_was_set_back() -> None:
    """The first window begins anew and counts nothing; the canary was nearly taken back as blind before it."""
    steps = state(cursor=1000.0 + HOURS * 3600, blind=BLIND_SECONDS - 1)
    seconds = []
    for measured in (Window(1000.0, {}, {}), window(until=1030.0), window(until=1060.0)):
        steps = decided(steps, served(), measured=measured).state
        seconds.append(steps.step_seconds)

    assert (steps.phase, steps.cursor, steps.blind) == ("Analyse", 1060.0, 0.0)
    assert seconds == [0.0, 30.0, 60.0]


def test_measurements_that_are_older_than_the_cursor_are_not_counted_again() -> None:
    result = decided(state(), served(), measured=window(until=970.0)).state

    assert (result.cursor, result.step_seconds) == (1000.0, 0.0) and result.blind > 0


def test_a_period_of_harm_has_no_length_where_the_clock_was_set_back_within_it() -> None:
    score = passing().evidence[0]
    period = HarmPeriod(since=score.until + HOURS * 3600, canary=Count(100, 9), expected=1.0)

    assert describe_harm(score.model_copy(update={"harm_period": period})).startswith("errors 9 of 100 (9.00 %), 1.0")


class SetBackPrometheus:
    """Prometheus whose clock says NOW, and which was not asked for a time that it does not know."""

    def now(self) -> float:
        return NOW

    def samples(self, selector: str, until: float, seconds: float) -> list[Any]:
        assert until == NOW and seconds > 0
        return []


def test_measurements_begin_anew_where_their_clock_was_set_back() -> None:
    evidence = PrometheusEvidence(SetBackPrometheus(), "qinglan", [Check(name="errors", margin=0.1)])  # type: ignore[arg-type]

    assert evidence.since("a", "b", NOW + HOURS * 3600) is None


NOON = datetime(2026, 11, 22, 12, 30, tzinfo=UTC)


@pytest.mark.parametrize("hours", [-30, -HOURS, -1, 1, HOURS, 30])
def test_a_logged_question_is_compared_once_whatever_the_clock_does(hours: int, tmp_path: Path) -> None:
    """Twice would be paid twice, and would count twice for the canary."""
    store = open_store(str(tmp_path)).prepare()

    def log(at: datetime) -> list[str]:
        key = f"payloads/{at:%Y-%m-%d}/{at:%H%M%S}-0a1b2c3d-000001.jsonl"
        store.backend.create(key, b"{}\n")
        return [key]

    minute, wrong = timedelta(minutes=1), timedelta(hours=hours)
    old = [key for at in {NOON, min(NOON, NOON + wrong)} for key in log(at - 10 * minute)]
    reader = PayloadLogReader(store)
    assert reader.new_keys(NOON) == []
    first = log(NOON + minute)
    times = [NOON + minute, NOON + wrong + minute, NOON + wrong + 2 * minute, NOON + 2 * minute, NOON + 3 * minute]
    read = [key for at in times for key in reader.new_keys(at)]
    last = log(NOON + 4 * minute)
    read += reader.new_keys(NOON + 5 * minute)

    assert read == first + last
    assert not {*old} & {*read}


def test_questions_are_read_after_the_clock_was_more_than_two_days_ahead_for_as_long(tmp_path: Path) -> None:
    """The hours of that future are known, and later by name than those that are read now."""
    store, wrong = open_store(str(tmp_path)).prepare(), timedelta(hours=60)
    reader = PayloadLogReader(store)
    for hour in range(HOURS_KNOWN + 2):
        reader.new_keys(NOON + wrong + timedelta(hours=hour))
    reader.new_keys(NOON)
    keys = []
    for minute in range(1, 20):
        at = NOON + timedelta(minutes=minute)
        keys.append(f"payloads/{at:%Y-%m-%d}/{at:%H%M%S}-0a1b2c3d-000001.jsonl")
        store.backend.create(keys[-1], b"{}\n")

        assert reader.new_keys(at) == keys[-1:]


WALL_CLOCK = {
    # a moment that is written down, for people or for a protocol; nothing is decided by it
    "qinglan/llm/batch/journal.py", "qinglan/llm/paid/journal.py", "qinglan/reward/reward_function.py",
    "qinglan/store/store.py", "serving/rewriter/chat.py", "serving/rewriter/payload_log.py",
    "serving/rewriter/request_record.py", "serving/rollout/cluster/lease.py", "pipelines/execute/execution.py",
    "pipelines/submit/start_run.py", "standins/teacher/app.py", "standins/teacher/batches.py",
    "qinglan/evaluation/gates/locked_test_uses.py",
    # an audit's now: what is dated in the future does not count yet
    "qinglan/lineage/release/release_notes.py", "qinglan/lineage/trace/walk.py",
    "qinglan/lineage/auditing/deploy_gate.py", "qinglan/lineage/signing/trust.py",
    "qinglan/lineage/auditing/audit.py", "qinglan/lineage/auditing/descendants.py",
    "serving/initialiser/release_fetcher.py", "commands/rollout/start.py",
    # clocks that keep the order, or count what a jump adds for little
    "qinglan/clock.py", "qinglan/lineage/steps/step_clock.py", "serving/rollout/cluster/controller.py",
    "serving/rollout/shadow/payload_log.py", "standins/rollout_local/__main__.py",
    "standins/rollout_local/evidence.py",
    # read where a service names no time of its own
    "qinglan/http/http_client.py",
    # S3 refuses a request that is signed at another time than its own
    "qinglan/store/s3_connection.py",
    # days: the age of prices, in a warning; two weeks, after which a job goes in any case; a day without a change,
    # after which another pod's half-written files go
    "qinglan/files/files.py",
    "commands/doctor/examine.py", "pipelines/checks/plan.py",
    "components/training/kubeflow/janitor.py",
}  # fmt: skip
"""The files that may read the time of day, by what they do with it. A duration takes `time.monotonic`."""

READINGS = {
    ("time", "time"), ("time", "time_ns"), ("datetime", "now"), ("datetime", "utcnow"), ("date", "today"),
    ("time", "utcnow"),
}  # fmt: skip


READING = re.compile("|".join({rf"\.{name}\b" for _, name in READINGS}))
"""In the text of each file that reads: few have one, and they alone are parsed."""


def names_read(path: Path) -> set[tuple[str, str]]:
    return {
        (node.value.id, node.attr)
        for node in nodes_of(parsed(path))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    }


def wall_clock_readers() -> Iterator[str]:
    for folder in ("qinglan", "components", "serving", "standins", "pipelines", "commands"):
        for path in sorted((REPOSITORY / folder).rglob("*.py")):
            if READING.search(path.read_text(encoding="utf-8")) and names_read(path) & READINGS:
                yield str(path.relative_to(REPOSITORY))


@pytest.mark.slow
def test_each_file_that_reads_the_time_of_day_is_known_with_its_reason() -> None:
    assert set(wall_clock_readers()) == WALL_CLOCK
