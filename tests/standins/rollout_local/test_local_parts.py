"""The parts of a rollout on one machine: files with versions, Knative's rules, and what is counted where."""

import itertools
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from qinglan.errors import ConflictError, DataError, OutageError
from serving.rollout.sequential import Count
from serving.rollout.spec import Check
from serving.rollout.state import DesiredModel
from standins.rollout_local.evidence import LocalEvidence, scrape_counters
from standins.rollout_local.knative import needed_releases, reconcile_status
from standins.rollout_local.ledger import FileLease
from standins.rollout_local.object_files import ObjectFiles
from standins.rollout_local.service import SERVICE_NAME, FileTarget, ServerStatus, ServiceStatus, create_service
from tests.processes.forkserver import GATEWAY, forked

pytestmark = pytest.mark.slow

OLD, NEW = "store/releases/old", "store/releases/new"
UP, DOWN = ServerStatus(version="v", url="http://here"), ServerStatus(version="v")


def test_a_writer_with_an_older_version_replaces_nothing(tmp_path: Path) -> None:
    objects = ObjectFiles(tmp_path)
    assert objects.create("one", {"metadata": {}, "spec": 1})
    assert not objects.create("one", {"metadata": {}, "spec": 7}), "a name is given once"
    first, second = objects.read("one"), objects.read("one")
    objects.replace("one", {**first, "spec": 2})

    with pytest.raises(ConflictError, match="is at version 2, not 1"):
        objects.replace("one", {**second, "spec": 3})
    assert objects.read("one")["spec"] == 2


COUNT_UP = """
import sys
from pathlib import Path
from qinglan.errors import ConflictError
from standins.rollout_local.object_files import ObjectFiles
objects = ObjectFiles(Path(sys.argv[1]))
done = 0
while done < 100:
    one = objects.read("one")
    try:
        objects.replace("one", {**one, "spec": one["spec"] + 1})
    except ConflictError:
        continue
    done += 1
"""


def test_processes_that_write_at_once_lose_no_write(tmp_path: Path) -> None:
    ObjectFiles(tmp_path).create("one", {"metadata": {}, "spec": 0})
    writers = [subprocess.Popen([sys.executable, "-c", COUNT_UP, str(tmp_path)]) for _ in range(3)]

    assert [writer.wait() for writer in writers] == [0, 0, 0]
    assert ObjectFiles(tmp_path).read("one")["spec"] == 300


def test_a_file_that_is_no_object_is_named(tmp_path: Path) -> None:
    (tmp_path / "one.json").write_text("{")

    with pytest.raises(DataError, match=r"one\.json: not an object"):
        ObjectFiles(tmp_path).read("one")
    with pytest.raises(DataError, match=r"two\.json: no such file"):
        ObjectFiles(tmp_path).read("two")


def run(program: str, *arguments: object) -> tuple[int, str]:
    command = forked(program, *map(str, arguments), libraries=GATEWAY)
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr


@pytest.mark.parametrize("program", ["standins.rollout_local", "standins.rollout_local.serve"])
def test_a_folder_that_holds_no_service_is_told_in_words(program: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    for place in ("missing", "file", "empty"):
        code, output = run(program, tmp_path / place)
        assert code == 3 and f"{place}/service.json: no such file. Deploy something there first." in output
    assert not (tmp_path / "missing").exists() and not any((tmp_path / "empty").iterdir()), "nothing was made"


def test_a_port_that_cannot_be_had_is_told_in_words(tmp_path: Path) -> None:
    create_service(tmp_path, OLD, "a person")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        for port in (99999, taken.getsockname()[1]):
            code, output = run("standins.rollout_local.serve", tmp_path, "--port", port)
            assert code == 2 and f"127.0.0.1:{port}: cannot listen there" in output


def test_a_lease_has_one_holder_and_passes_to_the_next_when_it_closes(tmp_path: Path) -> None:
    first, second = FileLease(tmp_path), FileLease(tmp_path)

    assert first.held() and first.held() and not second.held()
    first.close()
    assert second.held()
    second.close()


def test_the_generation_of_a_service_grows_only_with_a_change(tmp_path: Path) -> None:
    create_service(tmp_path, OLD, "a person")
    target = FileTarget(tmp_path)
    for desired in (DesiredModel(uri=NEW, percent=0), DesiredModel(uri=NEW, percent=0)):
        target.write(desired, target.read().resource_version)

    read = target.read()
    assert (read.generation, read.settled, read.editor) == (2, False, "the rollout's controller")
    with pytest.raises(ConflictError):
        target.write(DesiredModel(uri=OLD), "1")


def after(
    *steps: tuple[DesiredModel, Mapping[str, ServerStatus]], status: ServiceStatus | None = None
) -> ServiceStatus:
    """The status after each was asked for in turn, with these servers."""
    status = status or ServiceStatus()
    for generation, (desired, servers) in enumerate(steps, 1):
        status = reconcile_status(status, desired, generation, servers)
        assert reconcile_status(status, desired, generation, servers) == status, "the same again changes nothing"
    return status


def shares(status: ServiceStatus) -> dict[str, int]:
    result: dict[str, int] = {}
    for name, share in status.shares.items():
        revision = status.find_revision(name)
        assert revision
        result[revision.uri] = result.get(revision.uri, 0) + share
    return result


BOTH = {OLD: UP, NEW: UP}
STABLE = (DesiredModel(uri=OLD), {OLD: UP})
SHARE = DesiredModel(uri=NEW, percent=20)


PROMOTED = (DesiredModel(uri=NEW, percent=50), BOTH)
CANARY_DOWN, OLD_DOWN = {OLD: UP, NEW: DOWN}, {OLD: DOWN, NEW: UP}


@pytest.mark.parametrize(
    ("steps", "expected", "needed"),
    [
        pytest.param([(DesiredModel(uri=OLD, percent=5), {OLD: UP})], {OLD: 100}, {OLD}, id="first at any percent"),
        pytest.param([(DesiredModel(uri=OLD), {OLD: DOWN})], {}, {OLD}, id="first, not ready"),
        pytest.param([STABLE, (DesiredModel(uri=NEW, percent=0), BOTH)], {OLD: 100}, {OLD, NEW}, id="at 0 %"),
        pytest.param([STABLE, (SHARE, CANARY_DOWN)], {OLD: 100}, {OLD, NEW}, id="not ready: no share"),
        pytest.param([STABLE, (SHARE, CANARY_DOWN), (SHARE, BOTH)], {OLD: 80, NEW: 20}, {OLD, NEW}, id="then ready"),
        pytest.param([STABLE, (SHARE, BOTH), (SHARE, CANARY_DOWN)], {OLD: 80, NEW: 20}, {OLD, NEW}, id="dies later"),
        pytest.param([STABLE, PROMOTED, (DesiredModel(uri=NEW), BOTH)], {NEW: 100}, {NEW}, id="promoted"),
        # KServe's trap: a canary that is taken back in one step gets everybody until the restored pods are ready.
        pytest.param(
            [STABLE, PROMOTED, (DesiredModel(uri=OLD), OLD_DOWN)], {NEW: 100}, {OLD, NEW}, id="back in one step"
        ),
        pytest.param(
            [STABLE, PROMOTED, (DesiredModel(uri=OLD, percent=0), BOTH), (DesiredModel(uri=OLD), BOTH)],
            {OLD: 100}, {OLD}, id="back by the rollout's steps",
        ),
    ],
)  # fmt: skip
def test_traffic_is_split_as_by_knative(
    steps: list[tuple[DesiredModel, Mapping[str, ServerStatus]]], expected: dict[str, int], needed: set[str]
) -> None:
    status = after(*steps)

    assert shares(status) == expected and needed_releases(status, steps[-1][0]) == needed


def test_0_percent_of_what_was_promoted_goes_back_to_the_one_before_when_that_runs_again() -> None:
    taken_back = DesiredModel(uri=NEW, percent=0)
    promoted = after(STABLE, (DesiredModel(uri=NEW, percent=50), BOTH), (DesiredModel(uri=NEW), {NEW: UP}))
    waiting = after((taken_back, {NEW: UP}), status=promoted)

    assert shares(waiting) == {NEW: 100} and needed_releases(waiting, taken_back) == {OLD, NEW}
    assert shares(after((taken_back, BOTH), status=waiting)) == {OLD: 100}


def test_whatever_is_asked_for_in_whatever_order_the_shares_make_a_whole_and_go_to_who_has_run() -> None:
    asks = [DesiredModel(uri=uri, percent=percent) for uri in (OLD, NEW) for percent in (None, 0, 30, 100)]
    for order in itertools.product(asks, repeat=3):
        status = after(STABLE, *((desired, BOTH) for desired in order))
        assert sum(status.shares.values()) == 100 and set(shares(status)) <= {OLD, NEW}


class Counting:
    """A server whose /metrics say what it is told to say; None: it answers 500."""

    def __init__(self) -> None:
        self.series: dict[str, float] | None = {}
        counting = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                lines = [f"{name} {value}" for name, value in (counting.series or {}).items()]
                self.send_response(200 if counting.series is not None else 500)
                self.end_headers()
                self.wfile.write("\n".join([*lines, ""]).encode())

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def requests(version: str, outcome: str) -> str:
    return f'qinglan_rewriter_requests_total{{version="{version}",outcome="{outcome}"}}'


def questions(version: str) -> str:
    return f'qinglan_rewriter_questions_total{{version="{version}",tenant="t"}}'


CHECKS = (Check(name="errors", margin=0.1), Check(name="fallbacks", margin=0.1))


class Measured:
    """A folder whose service says that a router and two servers count."""

    def __init__(self, folder: Path, router: Counting, old: Counting, new: Counting) -> None:
        self.folder, self.router, self.old, self.new = folder, router, old, new
        servers = {uri: {"version": "v", "url": server.url} for uri, server in ((OLD, old), (NEW, new))}
        create_service(folder, OLD, "a person")
        objects = ObjectFiles(folder)
        objects.replace(
            SERVICE_NAME, {**objects.read(SERVICE_NAME), "status": {"url": router.url, "servers": servers}}
        )

        self.evidence = LocalEvidence(folder, CHECKS)

    def since(self, after: float | None) -> Any:
        return self.evidence.since("new", "old", after)


@contextmanager
def counting(number: int) -> Iterator[list[Counting]]:
    servers = [Counting() for _ in range(number)]
    try:
        yield servers
    finally:
        for server in servers:
            server.close()


@pytest.fixture
def measured(tmp_path: Path) -> Iterator[Measured]:
    with counting(3) as (router, old, new):
        router.series = {requests("new", "answered"): 5.0, requests("old", "answered"): 50.0}
        old.series, new.series = {questions("old"): 50.0}, {questions("new"): 5.0}
        yield Measured(tmp_path, router, old, new)


def test_a_window_holds_what_was_counted_since_its_cursor_and_nothing_before(measured: Measured) -> None:
    begun = measured.since(None)
    measured.router.series = {
        requests("new", "answered"): 8.0, requests("new", "failed"): 2.0, requests("old", "answered"): 60.0
    }  # fmt: skip
    measured.old.series, measured.new.series = {questions("old"): 60.0}, {questions("new"): 8.0}
    window = measured.since(begun.until)

    assert not begun.canary and window.until > begun.until
    assert window.canary == {"errors": Count(5, 2), "fallbacks": Count(3, 0)}
    assert window.stable == {"errors": Count(10, 0), "fallbacks": Count(10, 0)}
    assert measured.since(begun.until).canary == window.canary, "asked again: the same, if the cursor was not written"


def test_a_failure_that_router_and_server_both_counted_is_one(measured: Measured) -> None:
    begun = measured.since(None)
    failed = requests("new", "failed")
    measured.router.series = {**(measured.router.series or {}), failed: 3.0}
    measured.new.series = {**(measured.new.series or {}), failed: 3.0, requests("new", "hung_up"): 4.0}

    assert measured.since(begun.until).canary["errors"] == Count(3, 3)


def test_a_server_that_says_nothing_for_a_while_is_counted_on_from_where_it_was(measured: Measured) -> None:
    begun = measured.since(None)
    measured.new.series = None
    silent = measured.since(begun.until)
    measured.new.series = {questions("new"): 9.0}
    window = measured.since(silent.until)

    assert silent.canary["fallbacks"] == Count(0, 0) and window.canary["fallbacks"] == Count(4, 0)


def test_without_the_router_there_is_no_evidence(measured: Measured) -> None:
    begun = measured.since(None)
    measured.router.series = None

    with pytest.raises(OutageError, match="no numbers"):
        measured.since(begun.until)


def test_counts_of_other_servers_are_read_from_their_own_metrics(measured: Measured) -> None:
    """The RAG service its empty answers, the shadow the pairs that it judged."""
    checks = (Check(name="zero_hits", margin=0.1), Check(name="quality", margin=0.1))
    hits = ('qinglan_rag_requests_total{rewriter="new",status="200"}', 'qinglan_rag_zero_hits_total{rewriter="new"}')
    pairs = [f'qinglan_shadow_pairs_total{{canary="new",stable="old",outcome="{how}"}}' for how in ("won", "lost")]
    with counting(1) as (more,):
        evidence = LocalEvidence(measured.folder, checks, [more.url])
        more.series = dict.fromkeys((*hits, *pairs), 1.0)
        begun = evidence.since("new", "old", None)
        assert begun
        more.series = dict(zip((*hits, *pairs), (9.0, 3.0, 6.0, 4.0), strict=True))
        window = evidence.since("new", "old", begun.until)

    assert window and window.canary["zero_hits"] == Count(8, 2) and window.canary["quality"] == Count(8, 3)


def test_a_restarted_controller_counts_again_and_invents_nothing(measured: Measured) -> None:
    begun = measured.since(None)
    measured.evidence = LocalEvidence(measured.folder, CHECKS)
    measured.router.series = {requests("new", "answered"): 105.0, requests("old", "answered"): 150.0}

    assert measured.since(begun.until) is None
    measured.router.series = {requests("new", "answered"): 106.0, requests("old", "answered"): 152.0}
    assert measured.since(begun.until).canary["errors"] == Count(1, 0)


def test_counting_begins_anew_where_the_clock_was_set_back(
    measured: Measured, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, right = measured.since(None), time.time()
    monkeypatch.setattr(time, "time", lambda: right - 3600)
    anew = measured.since(begun.until)
    assert anew.until < begun.until and not anew.canary and not anew.stable, "only the time to begin at"

    monkeypatch.setattr(time, "time", lambda: right - 3570)
    measured.router.series = {requests("new", "answered"): 106.0, requests("old", "answered"): 152.0}
    assert measured.since(anew.until).canary["errors"].total > 0


@pytest.mark.parametrize("output", ["qinglan_rewriter_requests_total{ 3", "\x00\x01", "<html></html>"])
def test_metrics_that_are_none_are_no_answer(output: str) -> None:
    with counting(1) as (server,):
        server.series = {output: 1.0}
        with pytest.raises(OutageError, match="/metrics: no numbers"):
            scrape_counters(server.url)
