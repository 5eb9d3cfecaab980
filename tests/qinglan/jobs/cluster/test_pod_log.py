"""The log of a pod: no line twice, none lost."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from qinglan.jobs.cluster.pod_log import LogPosition, PodLog, lines_after, normalise_timestamp
from qinglan.kubernetes.client import Api
from tests.screens.pod_logs import PodLogs, pod_logs

POD: dict[str, Any] = {"metadata": {"name": "sft-0a-master-0", "uid": "p1"}, "status": {}}
BASE = "2026-01-01T08:00:0"


@pytest.fixture
def server() -> Iterator[PodLogs]:
    with pod_logs() as logs:
        yield logs


class Following:
    def __init__(self, server: PodLogs, log: Path, on_line: Callable[[str], None] | None = None) -> None:
        from kubernetes import client

        settings = client.Configuration(host=server.url)
        settings.retries = False
        self.heard: list[str] = []
        self.lines: list[str] = []
        self.path = log
        self.log = PodLog(Api(client.ApiClient(settings), "n"), log, on_line or self.heard.append, self.lines.append)
        self.log.start(POD)

    def until(self, count: int) -> None:
        end = time.monotonic() + 20
        while len(self.heard) < count and time.monotonic() < end:
            time.sleep(0.01)

    def finished(self) -> list[str]:
        self.log.finish(20)
        return self.path.read_text().splitlines()


def test_a_log_is_heard_while_it_is_written(server: PodLogs, tmp_path: Path) -> None:
    following = Following(server, tmp_path / "log" / "train.log")
    server.say(f"{BASE}0.1Z", "一")
    following.until(1)

    assert following.heard == ["一"]
    assert (tmp_path / "log" / "train.log").read_text() == "一\n"
    server.say(f"{BASE}0.2Z", "")
    server.end()
    assert following.finished() == ["一", ""]


@pytest.mark.parametrize("broken", range(1, 7))
def test_a_stream_that_breaks_loses_no_line_and_repeats_none(broken: int, server: PodLogs, tmp_path: Path) -> None:
    """All in the second that is asked for again, some at the very same time."""
    stamps = ["0.5Z", "0.5Z", "0.50Z", "0.500000001Z", "0.6Z", "1Z"]
    server.breaks_after = broken
    for number, stamp in enumerate(stamps):
        server.say(f"{BASE}{stamp}", f"line {number}")
    server.end()

    following = Following(server, tmp_path / "train.log")
    following.until(len(stamps))

    assert following.finished() == [f"line {number}" for number in range(len(stamps))] == following.heard
    assert len(server.requests) > 1


def test_a_resumed_pod_log_reports_every_line_and_completes_the_file(server: PodLogs, tmp_path: Path) -> None:
    first = Following(server, tmp_path / "train.log")
    server.say(f"{BASE}1Z", "a")
    server.say(f"{BASE}1Z", "b")
    first.until(2)
    first.log.stop()
    server.say(f"{BASE}1Z", "c")
    server.end()

    second = Following(server, tmp_path / "train.log")

    assert second.finished() == ["a", "b", "c"]
    assert second.heard == ["a", "b", "c"]


def test_log_lines_after_the_last_noted_position_are_cut_off(server: PodLogs, tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("a\nb\nhalf a li")
    noted = {"pod": "p1", "size": 2, **LogPosition(normalise_timestamp(f"{BASE}1Z"), 1)._asdict()}
    (tmp_path / ".train.log.position").write_bytes(orjson.dumps(noted))
    for text in ("a", "b", "half a line"):
        server.say(f"{BASE}1Z", text)
    server.end()

    assert Following(server, log).finished() == ["a", "b", "half a line"]


def test_the_log_of_another_pod_is_added(server: PodLogs, tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("of an earlier attempt\n")
    noted = {"pod": "p0", "size": 22, **LogPosition(normalise_timestamp(f"{BASE}9Z"), 1)._asdict()}
    (tmp_path / ".train.log.position").write_bytes(orjson.dumps(noted))
    server.say(f"{BASE}1Z", "a")
    server.end()

    assert Following(server, log).finished() == ["of an earlier attempt", "a"]


def test_an_error_of_the_listener_is_kept_for_whoever_follows(server: PodLogs, tmp_path: Path) -> None:
    def refuse(line: str) -> None:
        raise ValueError(line)

    server.say(f"{BASE}1Z", "a")
    server.end()
    following = Following(server, tmp_path / "train.log", refuse)
    following.log.finish(20)

    assert isinstance(following.log.error, ValueError)


@pytest.mark.parametrize(
    ("stamp", "text"),
    [
        ("2026-01-01T08:00:00Z", "2026-01-01T08:00:00.000000000Z"),
        ("2026-01-01T08:00:00.12Z", "2026-01-01T08:00:00.120000000Z"),
        ("2026-01-01T16:00:00.123456789+08:00", "2026-01-01T08:00:00.123456789Z"),
        ("failed", ""),
        ("", ""),
    ],
)
def test_times_of_any_node_compare_as_text(stamp: str, text: str) -> None:
    assert normalise_timestamp(stamp) == text


def test_a_word_of_the_server_s_own_has_no_time_and_is_kept() -> None:
    lines = [f"{BASE}1Z a".encode(), b"failed to watch file", f"{BASE}2Z b".encode()]

    assert [text for _, text in lines_after(iter(lines), LogPosition())] == [b"a", b"failed to watch file", b"b"]
