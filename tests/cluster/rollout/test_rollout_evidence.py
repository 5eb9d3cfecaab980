"""Counts of two versions from a real Prometheus: right to a request, and nothing made up for what was not seen."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from qinglan.errors import OutageError
from serving.rollout.cluster.evidence import PrometheusEvidence
from serving.rollout.cluster.prometheus import PrometheusClient
from serving.rollout.ports import Window
from serving.rollout.sequential import Count
from serving.rollout.spec import CHECKS
from tests.cluster.rollout.prometheus import Pod, Server, prometheus
from tests.cluster.servers import stop
from tests.cluster.waiting import until

OLD, NEW = "a" * 12, "b" * 12
NS, OTHER = "tenant-a", "tenant-b"


class World:
    """A pod of each version, and pods that come later: found all at once, since Prometheus takes seconds for that."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.old, self.new = Pod(NS, "old", OLD), Pod(NS, "new", NEW)
        self.later = {name: Pod(NS, name, version) for name, version in (("old-2", OLD), ("new-2", NEW))}
        self.foreign = Pod(OTHER, "new", NEW)
        for pod in self.later.values():
            pod.end()
        self.evidence = PrometheusEvidence(PrometheusClient(server.url), NS, CHECKS)
        self.pods = [self.old, self.new, self.foreign, *self.later.values()]
        server.find(*self.pods)
        self.scraped()

    def close(self) -> None:
        for pod in (self.old, self.new, self.foreign):
            pod.end()
        self.evidence.prometheus.close()

    def scraped(self, *pods: Pod) -> None:
        """Scraped twice: a window ends where both versions were seen, and one may be seen first before it counts."""
        for _ in range(2):
            self.server.await_scrape(*(pods or (self.old, self.new)))

    def since(self, cursor: float | None) -> Window:
        window = self.evidence.since(NEW, OLD, cursor)
        assert window is not None
        return window


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with prometheus(tmp_path_factory.mktemp("prometheus")) as server:
        world = World(server)
        yield world
        world.close()


@contextmanager
def come(pod: Pod, started: float | None = None, served: int = 0) -> Iterator[Pod]:
    pod.begin(started, served)
    try:
        yield pod
    finally:
        pod.end()


def test_every_request_is_counted_once_however_often_one_looks(world: World) -> None:
    cursor = world.since(None).until
    canary = stable = failed = slow = costly = 0.0
    for _ in range(3):
        world.new.serve(90, failed=10, slow=5, costly=4)
        world.old.serve(200)
        world.scraped()
        window = world.since(cursor)
        cursor, canary, stable = (
            window.until,
            canary + window.canary["errors"].total,
            stable + window.stable["errors"].total,
        )
        failed, slow = failed + window.canary["errors"].failed, slow + window.canary["slow"].failed
        costly += window.canary["costly"].failed
    world.scraped()
    last = world.since(cursor)

    assert (canary + last.canary["errors"].total, stable + last.stable["errors"].total) == (300, 600)
    assert (failed + last.canary["errors"].failed, slow + last.canary["slow"].failed) == (30, 15)
    assert costly + last.canary["costly"].failed == 12
    assert last.stable["errors"].failed == 0


def test_a_window_that_begins_only_says_where(world: World) -> None:
    world.new.serve(50)
    world.scraped()
    begun = world.since(None)

    assert begun.canary == begun.stable == {}
    assert world.since(begun.until).canary["errors"] == Count(0, 0), "what was before it is not in any window"


def test_a_pod_that_began_anew_counts_from_nothing(world: World) -> None:
    world.new.serve(50)
    world.scraped()
    cursor = world.since(None).until
    world.new.end()
    world.new.begin()
    world.new.serve(7, failed=3)
    world.scraped()

    assert world.since(cursor).canary["errors"] == Count(10, 3)


def test_a_pod_that_came_later_is_counted_whole_and_a_first_zero_hit_too(world: World) -> None:
    cursor = world.since(None).until
    with come(world.later["new-2"], served=40) as more:
        world.new.empty.labels("demo", NEW).inc(4)
        world.scraped(world.old, world.new, more)
        window = world.since(cursor)

    assert window.canary["errors"] == Count(40, 0)
    assert window.canary["zero_hits"] == Count(40, 4), "a series that was not there before was 0"


def test_an_old_process_that_is_found_only_now_does_not_bring_its_past(world: World) -> None:
    cursor = world.since(None).until
    with come(world.later["old-2"], time.time() - 86_400, 1000) as late:
        world.scraped(world.old, world.new, late)
        late.serve(5)
        world.scraped(world.old, world.new, late)

        assert world.since(cursor).stable["errors"] == Count(5, 0)


def test_a_side_that_is_not_scraped_stops_the_window_and_nothing_of_it_is_lost(world: World) -> None:
    world.new.serve(100)  # so that one that begins anew has counted less
    world.scraped()
    cursor = world.since(None).until
    world.new.end()
    world.old.serve(500)
    world.scraped(world.old)
    stopped = world.since(cursor)
    world.old.serve(500)
    world.scraped(world.old)

    assert world.since(cursor).until == stopped.until, "Prometheus still has a value of it, of long ago"
    assert world.since(cursor).canary["errors"] == Count(0, 0)

    world.new.begin()
    world.new.serve(20)
    world.scraped()
    window = world.since(stopped.until)
    assert window.until > stopped.until
    assert stopped.stable["errors"].total + window.stable["errors"].total == 1000
    assert window.canary["errors"] == Count(20, 0)


def test_a_version_that_nobody_ever_scraped_is_no_data(world: World) -> None:
    assert world.evidence.since("c" * 12, OLD, None) is None


def test_a_pod_that_is_found_in_two_ways_is_counted_once(world: World) -> None:
    again = copy(world.new)
    again.labels = {**world.new.labels, "service": "another"}
    world.server.find(*world.pods, again)
    until(lambda: len(world.server.scraped(world.new)) == 2)
    world.scraped()
    cursor = world.since(None).until
    world.new.serve(30)
    world.scraped()

    assert world.since(cursor).canary["errors"] == Count(30, 0)


def test_the_numbers_of_another_namespace_are_not_ours(world: World) -> None:
    cursor = world.since(None).until
    world.foreign.serve(100, failed=100)
    world.scraped(world.old, world.new, world.foreign)

    assert world.since(cursor).canary["errors"] == Count(0, 0)


class Garbage(BaseHTTPRequestHandler):
    answer: tuple[int, bytes] = (200, b"")

    def do_POST(self) -> None:
        status, body = self.answer
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize(
    "answer",
    [
        (500, b"on fire"), (302, b""), (200, b"<html>login</html>"), (200, b"[]"), (200, b'{"status":"error"}'),
        (200, b'{"status":"success","data":{"resultType":"scalar","result":[]}}'),
        (200, b'{"status":"success","warnings":["half"],"data":{"resultType":"scalar","result":[1,"2"]}}'),
        (200, b'{"status":"success","data":{"resultType":"scalar","result":["x","y"]}}'),
    ],
)  # fmt: skip
def test_an_incomplete_prometheus_answer_is_an_outage(answer: tuple[int, bytes]) -> None:
    door = HTTPServer(("127.0.0.1", 0), type("One", (Garbage,), {"answer": answer}))
    threading.Thread(target=door.serve_forever, args=(0.01,), daemon=True).start()
    client = PrometheusClient(f"http://127.0.0.1:{door.server_address[1]}")
    try:
        with pytest.raises(OutageError):
            PrometheusEvidence(client, NS, CHECKS).since(NEW, OLD, 1.0)
    finally:
        door.shutdown()
        door.server_close()
        client.close()


def test_a_prometheus_that_is_down_is_an_outage(tmp_path: Path) -> None:
    with prometheus(tmp_path) as gone:
        client = PrometheusClient(gone.url)
        assert client.now() > 0
        stop(gone.process)
        with pytest.raises(OutageError, match="Does Prometheus run there"):
            client.now()
        client.close()
