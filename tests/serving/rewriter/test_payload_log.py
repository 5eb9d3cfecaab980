"""The payload log: digests unless told otherwise, by share, bounded, and never in an answer's way."""

import hashlib
import signal
import threading
from pathlib import Path
from typing import Any

import orjson
import pytest

from qinglan.prompts import Question
from serving.rewriter import payload_log
from serving.rewriter.config import PayloadConfig
from serving.rewriter.payload_log import PayloadLog, is_sampled, payload_record
from tests.serving.model_servers import REQUEST, V1, Serve

SECRET = "密语"


class Counted(dict[str, int]):
    def __call__(self, how: str, count: int) -> None:
        self[how] = self.get(how, 0) + count


def written(store: Path) -> list[dict[str, Any]]:
    return [orjson.loads(line) for path in sorted(store.rglob("*.jsonl")) for line in path.read_bytes().splitlines()]


def test_an_entry_holds_digests_and_no_text_unless_it_is_told_to() -> None:
    requested = Question("fivedoctors", SECRET, "", "历史")

    plain, whole = (
        payload_record(requested, "改写", text, request_id="r", version="v", outcome="answered")
        for text in (False, True)
    )

    assert plain["question_sha256"] == hashlib.sha256(SECRET.encode()).hexdigest()
    assert plain["user_profile_sha256"] == ""
    assert SECRET not in str(plain)
    assert (whole["question"], whole["rewrite"], whole["tenant"]) == (SECRET, "改写", "fivedoctors")


def test_a_share_is_the_same_requests_everywhere_and_about_as_many() -> None:
    ids = [f"request-{number}" for number in range(4000)]

    some, more = ({item for item in ids if is_sampled(item, share)} for share in (0.1, 0.3))

    assert some < more
    assert 300 < len(some) < 500
    assert not any(is_sampled(item, 0.0) for item in ids)
    assert all(is_sampled(item, 1.0) for item in ids)


def test_a_record_that_cannot_be_written_does_not_end_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(payload_log, "MOST_TOGETHER", 1)
    counted = Counted()
    log = PayloadLog(PayloadConfig(store=str(tmp_path)), counted)
    log.add({"unwritable": object()})
    log.add({"number": 2})
    log.close()

    assert counted == {"failed": 1, "kept": 1}
    assert written(tmp_path) == [{"number": 2}]


def test_queued_payloads_are_written_before_the_log_closes(tmp_path: Path) -> None:
    counted = Counted()
    log = PayloadLog(PayloadConfig(store=str(tmp_path)), counted)
    for number in range(2500):
        log.add({"number": number})
    log.close()

    assert [item["number"] for item in written(tmp_path)] == list(range(2500))
    assert counted == {"kept": 2500}


def test_a_store_that_hangs_drops_records_and_holds_nobody_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted, hangs = Counted(), threading.Event()
    monkeypatch.setattr(payload_log, "MOST_WAITING", 10)
    monkeypatch.setattr(payload_log, "MOST_TOGETHER", 1)
    log = PayloadLog(PayloadConfig(store=str(tmp_path)), counted)
    monkeypatch.setattr(log._backend, "create", lambda key, data: hangs.wait(30))
    for number in range(100):
        log.add({"number": number})

    assert 85 <= counted["dropped"] <= 90
    hangs.set()
    log.close()
    assert counted["dropped"] + counted["kept"] == 100


@pytest.mark.slow
def test_a_server_keeps_what_it_answered_by_the_requests_id(serve: Serve, tmp_path: Path) -> None:
    with serve("--payload-log", str(tmp_path)) as served:
        headers = {"x-request-id": "abc-7"}
        served.http.post(V1, json={"instances": [REQUEST, REQUEST | {"query": SECRET}]}, headers=headers)
        served.http.post(V1, json={"instances": [{}]})
        served.process.send_signal(signal.SIGTERM)
        assert served.process.wait(120) == 0

    stored = written(tmp_path)
    assert [(item["request_id"], item["outcome"]) for item in stored] == [("abc-7", "answered")] * 2
    assert stored[1]["question_sha256"] == hashlib.sha256(SECRET.encode()).hexdigest()
    assert SECRET not in str(stored)


@pytest.mark.slow
def test_options_of_the_log_mean_nothing_without_it() -> None:
    from qinglan.errors import ConfigError
    from serving.rewriter.__main__ import parser, read_options

    with pytest.raises(ConfigError, match="without --payload-log"):
        read_options(vars(parser().parse_args(["--model", ".", "--payload-text"])))
    with pytest.raises(ConfigError, match=r"payload_log\.share"):
        read_options(vars(parser().parse_args(["--model", ".", "--payload-log", "x", "--payload-share", "2"])))
