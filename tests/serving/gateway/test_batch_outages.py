"""A service that stumbles while a batch is under way: what may pass is waited for, what does not is said."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from qinglan.errors import OutageError
from qinglan.llm.batch_api import REQUEST_LINE_OVERHEAD, BatchProblem, BatchStatus
from qinglan.llm.batch_journal import Batch
from qinglan.llm.batch_queue import QueueItem, rows_that_fit
from qinglan.llm.journal_reader import read_report
from serving.gateway.batch_rows import batch_failure, outcome_without_line
from standins.teacher.app import create_app
from standins.teacher.config import Behaviour
from tests.echo import EchoBrain, gateway, running
from tests.serving.gateway.batching import ask_rows, batched, echoes, run_rows, stats, texts

ROWS = [str(number) for number in range(12)]
BATCH = Batch(1, "teacher", "n", 0.0, 10, 0.5, "f", "b", "in_progress")


class Stumbling:
    """A service that does what it is asked and answers some requests with a 500 all the same."""

    def __init__(self, app: Any, method: str, prefix: str, times: int) -> None:
        self._app, self._method, self._prefix, self.left = app, method, prefix, times

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        stumbles = self.left > 0 and scope["method"] == self._method and scope["path"].startswith(self._prefix)
        if not stumbles:
            await self._app(scope, receive, send)
            return
        self.left -= 1

        async def nowhere(message: Any) -> None:
            pass

        await self._app(scope, receive, nowhere)
        await send({"type": "http.response.start", "status": 500, "headers": []})
        await send({"type": "http.response.body", "body": b"<html>down</html>"})


@pytest.mark.parametrize(
    ("method", "prefix"),
    [("POST", "/v1/files"), ("POST", "/v1/batches"), ("GET", "/v1/batches/"), ("GET", "/v1/files/")],
)
def test_one_stumble_is_no_outage_and_pays_nothing_twice(tmp_path: Path, method: str, prefix: str) -> None:
    service = Stumbling(create_app(EchoBrain(), Behaviour()), method, prefix, 1)
    with running(service) as teacher:
        answers, report = run_rows(batched(teacher), tmp_path, ROWS)
        assert (stats(teacher)["batches"], stats(teacher)["billed"]) == (1, len(ROWS))
    assert service.left == 0
    assert texts(answers) == echoes(ROWS)
    assert (report["attempts"], report["possibly_billed"]) == (len(ROWS), [])


def test_a_service_that_stays_away_is_an_outage_and_the_batch_is_read_when_it_is_back(tmp_path: Path) -> None:
    service = Stumbling(create_app(EchoBrain(), Behaviour()), "GET", "/v1/batches/", 10**6)
    with running(service) as teacher:
        with pytest.raises(OutageError, match=r"status 500.*polled on"):
            run_rows(batched(teacher), tmp_path, ROWS)
        [left] = read_report(tmp_path / "journal.sqlite")["batches"]
        assert (left["role"], left["rows"]) == ("teacher", len(ROWS))
        service.left = 0
        answers, report = run_rows(batched(teacher), tmp_path, ROWS)
        assert (stats(teacher)["batches"], stats(teacher)["billed"]) == (1, len(ROWS))
    assert texts(answers) == echoes(ROWS)
    assert (report["hits"], report["batches"], report["possibly_billed"]) == (0, [], [])


def test_a_service_that_is_not_there_is_an_outage_that_says_so(tmp_path: Path) -> None:
    with pytest.raises(OutageError, match=r"ConnectError.*polled on"):
        run_rows(batched("http://127.0.0.1:9"), tmp_path, ROWS)


def test_metrics_and_report_tell_of_batches_and_their_rows(tmp_path: Path) -> None:
    async def run(teacher: str) -> tuple[str, dict[str, Any]]:
        async with gateway(batched(teacher), tmp_path) as url, httpx.AsyncClient(trust_env=False) as http:
            await ask_rows(url, ROWS)
            return (await http.get(f"{url}/metrics")).text, (await http.get(f"{url}/v1/prices")).json()

    with running(create_app(EchoBrain(), Behaviour(batch_faults="expired"))) as teacher:
        text, prices = asyncio.run(run(teacher))
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert lines['qinglan_batches_total{role="teacher",status="made"}'] == "2.0"
    assert lines['qinglan_batches_total{role="teacher",status="expired"}'] == "1.0"
    assert lines['qinglan_batch_rows_total{outcome="answered",role="teacher"}'] == "12.0"
    assert lines['qinglan_batch_rows_total{outcome="again",role="teacher"}'] == "6.0"
    assert lines['qinglan_batches_open{role="teacher"}'] == "0.0"
    assert lines['qinglan_attempts_total{role="teacher"}'] == "18.0"
    assert lines["qinglan_money_reserved"] == "0.0"
    assert prices["teacher"]["batch"]["price_factor"] == 0.5
    assert "batch" not in prices["judge"]


def test_a_batch_takes_from_the_head_of_the_queue_what_the_file_and_the_money_hold() -> None:
    queue = [QueueItem(place, 100, 1.0) for place in range(10)]
    line = 100 + REQUEST_LINE_OVERHEAD
    assert rows_that_fit(queue, 100.0, 50, 10**6) == 10
    assert rows_that_fit(queue, 3.5, 50, 10**6) == 3
    assert rows_that_fit(queue, 100.0, 4, 10**6) == 4
    assert rows_that_fit(queue, 100.0, 50, 2 * line) == 2
    assert rows_that_fit(queue, 0.5, 50, 10**6) == 0


@pytest.mark.parametrize(
    ("status", "reason", "billed", "counts"),
    [
        ("completed", "missing", True, True),
        ("expired", "expired", False, True),
        ("cancelled", "cancelled", False, False),
        ("failed", "not run", False, False),
    ],
)
def test_a_row_without_a_line_has_what_the_batchs_end_means(
    status: str, reason: str, billed: bool, counts: bool
) -> None:
    outcome, tried = outcome_without_line(status, None)
    assert (outcome.reason, outcome.maybe_billed, tried) == (reason, billed, counts)


@pytest.mark.parametrize(
    ("status", "problems", "answered", "failed", "says"),
    [
        ("completed", (), 9, 1, ""),
        ("completed", (), 0, 10, "all of 10 rows failed"),
        ("completed", (), 0, 2, ""),
        ("expired", (), 0, 0, ""),
        ("cancelled", (), 5, 0, "cancelled at the service"),
        ("failed", (BatchProblem("token_limit_exceeded", "too many", None),), 0, 0, ""),
        ("failed", (BatchProblem("billing_hard_limit_reached", "no money", None),), 0, 0, "no money"),
        ("failed", (), 0, 0, "does not say why"),
        ("failed", (BatchProblem("invalid", "bad", 3),), 0, 1, ""),
    ],
)
def test_a_batch_stops_the_run_where_no_row_is_to_blame(
    status: str, problems: tuple[BatchProblem, ...], answered: int, failed: int, says: str
) -> None:
    found = batch_failure(BATCH, BatchStatus("b", status, (), 0, 10, problems), answered, failed, 8, alone=True)
    assert says in found if says else not found
