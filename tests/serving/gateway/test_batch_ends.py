"""Batches that end as none should, and gateways that end before their batches do."""

import asyncio
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from qinglan.errors import OutageError
from qinglan.llm.batch_journal import BatchJournal
from qinglan.llm.budget import Budget
from qinglan.llm.client import GatewayClient
from qinglan.llm.contract import PLANNED_REQUESTS_PATH
from qinglan.llm.journal import Call, Entry, Journal
from qinglan.llm.journal_reader import read_report
from serving.gateway.call_plan import PaidRequest
from serving.gateway.paid_calls import GatewayStopping
from serving.gateway.server import open_gateway
from standins.teacher.app import create_app
from standins.teacher.config import Behaviour
from tests.echo import EchoBrain, GatewayProcess, gateway, gateway_config, running
from tests.serving.gateway.batching import Asked, ask_rows, batched, echoes, messages, run_rows, stats, texts

pytestmark = pytest.mark.slow

ROWS = [str(number) for number in range(12)]
MANY = [str(number) for number in range(150)]
"""More than a stage asks for at once."""


class Refusing:
    """A service that answers some requests with a status of the test's: so often, or until it is told to be well."""

    def __init__(
        self, app: Any, status: int, method: str, path: str, acts: bool = False, times: int = 1_000_000
    ) -> None:
        self._app, self._status, self._method, self._path, self._acts = app, status, method, path, acts
        self.well, self.refused, self._times = False, 0, times

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        asked = scope["method"] == self._method and scope["path"].startswith(self._path)
        if self.well or self.refused == self._times or not asked:
            await self._app(scope, receive, send)
            return

        async def nowhere(message: Any) -> None:
            pass

        self.refused += 1
        if self._acts:
            await self._app(scope, receive, nowhere)
        await send({"type": "http.response.start", "status": self._status, "headers": []})
        await send({"type": "http.response.body", "body": b'{"error": {"message": "No such thing."}}'})


class Hasty:
    """A service that says `completed` before it names the files, for so many looks."""

    def __init__(self, app: Any, looks: int) -> None:
        self._app, self.left = app, looks

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["method"] != "GET" or not scope["path"].startswith("/v1/batches/"):
            await self._app(scope, receive, send)
            return

        async def without_files(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [(b"content-type", b"application/json")]
            else:
                told = orjson.loads(message["body"])
                if told["status"] == "completed" and self.left:
                    self.left -= 1
                    told["output_file_id"] = None
                message["body"] = orjson.dumps(told)
            await send(message)

        await self._app(scope, receive, without_files)


def rows_in_queue(folder: Path) -> int:
    with closing(sqlite3.connect(folder / "journal.sqlite")) as database:
        found: int = database.execute("SELECT count(*) FROM queue").fetchone()[0]
        return found


async def live_again(teacher: str, folder: Path) -> list[Asked]:
    """What a stage gets, when the batches from before have ended, from a gateway without batch mode."""
    async with gateway(gateway_config(teacher), folder) as url:
        async with GatewayClient(url, "report") as client:
            while (await client.report())["batches"]:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        return await ask_rows(url, ROWS)


@pytest.mark.parametrize("path", ["/v1/batches/", "/v1/files/"])
def test_a_batch_that_its_service_has_forgotten_is_waited_for_until_somebody_gives_it_up(
    tmp_path: Path, path: str
) -> None:
    service = Refusing(create_app(EchoBrain(), Behaviour()), 404, "GET", path)
    with running(service) as teacher:
        with pytest.raises(OutageError, match=r"is not known there.*take `batch` out of this role's settings"):
            run_rows(batched(teacher), tmp_path, ROWS)
        assert [one["rows"] for one in read_report(tmp_path / "journal.sqlite")["batches"]] == [len(ROWS)]

        answers = asyncio.run(live_again(teacher, tmp_path))

    assert texts(answers) == echoes(ROWS)
    report = read_report(tmp_path / "journal.sqlite")
    assert report["possibly_billed"] == sorted(f"generate/{row}" for row in ROWS)
    assert (report["attempts"], report["batches"]) == (2 * len(ROWS), [])


def test_where_no_batches_are_known_one_that_nobody_heard_of_is_given_up_as_possibly_billed(tmp_path: Path) -> None:
    """It was made and the answer was lost; the role is live since, at a service without batches."""
    app = Refusing(create_app(EchoBrain(), Behaviour()), 500, "POST", "/v1/batches", acts=True)
    with running(Refusing(app, 404, "GET", "/v1/batches")) as teacher:
        with pytest.raises(OutageError, match="is not known there"):
            run_rows(batched(teacher), tmp_path, ROWS)
        answers = asyncio.run(live_again(teacher, tmp_path))
        assert stats(teacher)["batches"] == 1
    assert texts(answers) == echoes(ROWS)
    assert len(read_report(tmp_path / "journal.sqlite")["possibly_billed"]) == len(ROWS)


def test_a_batch_that_is_known_again_is_read_and_nothing_was_paid_twice(tmp_path: Path) -> None:
    service = Refusing(create_app(EchoBrain(), Behaviour()), 404, "GET", "/v1/batches/")
    with running(service) as teacher:
        with pytest.raises(OutageError, match="polled on"):
            run_rows(batched(teacher), tmp_path, ROWS)
        service.well = True
        answers, report = run_rows(batched(teacher), tmp_path, ROWS)
        assert stats(teacher)["billed"] == len(ROWS)
    assert texts(answers) == echoes(ROWS)
    assert report["possibly_billed"] == []


def test_a_file_that_comes_a_moment_after_the_end_is_waited_for(tmp_path: Path) -> None:
    service = Hasty(create_app(EchoBrain(), Behaviour()), looks=2)
    with running(service) as teacher:
        answers, report = run_rows(batched(teacher), tmp_path, ROWS)
        assert (service.left, stats(teacher)["billed"]) == (0, len(ROWS))
    assert texts(answers) == echoes(ROWS)
    assert (report["attempts"], report["possibly_billed"]) == (len(ROWS), [])


def test_a_file_that_never_comes_leaves_its_rows_possibly_billed(tmp_path: Path) -> None:
    with running(Hasty(create_app(EchoBrain(), Behaviour()), looks=3)) as teacher:
        answers, report = run_rows(batched(teacher), tmp_path, ROWS)
    assert texts(answers) == echoes(ROWS)
    assert len(report["possibly_billed"]) == len(ROWS)


def test_a_listing_that_is_refused_does_not_dissolve_the_batch_that_it_would_have_shown(tmp_path: Path) -> None:
    """The batch was made and nobody heard; the service then refuses to say which batches there are."""
    app = Refusing(create_app(EchoBrain(), Behaviour()), 500, "POST", "/v1/batches", acts=True)
    service = Refusing(app, 403, "GET", "/v1/batches")

    async def run(teacher: str) -> list[Asked]:
        async with gateway(batched(teacher), tmp_path) as url:
            asked = asyncio.create_task(ask_rows(url, ROWS))
            while service.refused < 4:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            app.well = service.well = True
            await asyncio.gather(asked, return_exceptions=True)
            return await ask_rows(url, ROWS)

    with running(service) as teacher:
        answers = asyncio.run(run(teacher))
        assert (stats(teacher)["batches"], stats(teacher)["billed"]) == (1, len(ROWS))
    assert texts(answers) == echoes(ROWS)


def test_money_is_held_before_its_batch_is_written_and_comes_back_where_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[float] = []
    budgets: list[Budget] = []
    hold = Budget.hold

    def watched(budget: Budget, amount: float) -> None:
        budgets.append(budget)
        hold(budget, amount)

    async def fails(book: BatchJournal, *_: Any) -> None:
        seen.append(budgets[0].reserved)
        raise OutageError("the disk is full")

    monkeypatch.setattr(Budget, "hold", watched)
    monkeypatch.setattr(BatchJournal, "make", fails)
    with running(create_app(EchoBrain(), Behaviour())) as teacher, pytest.raises(OutageError, match="disk is full"):
        run_rows(batched(teacher), tmp_path, ROWS)
    assert seen[0] > 0
    assert budgets[0].reserved == 0


def test_a_gateway_that_is_being_stopped_sends_no_batch_while_it_waits_for_what_was_sent(tmp_path: Path) -> None:
    async def run(teacher: str) -> int:
        first = GatewayProcess(batched(teacher, {"gather_seconds": 0.4}), tmp_path)
        url = first.url()
        asks = [{"model": "teacher", "messages": messages(row), "row": row} for row in ROWS]
        async with httpx.AsyncClient(base_url=url, trust_env=False) as http, GatewayClient(url, "ppo") as client:
            live = asyncio.create_task(client.ask("teacher", messages("live"), row="live"))
            while not stats(teacher)["asked"]:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            await http.post(PLANNED_REQUESTS_PATH, json={"step": "generate", "asks": asks})
            code = await asyncio.to_thread(first.stop)
            await asyncio.gather(live, return_exceptions=True)
            return code

    with running(create_app(EchoBrain(), Behaviour(latency=1.5))) as teacher:
        began = time.monotonic()
        assert asyncio.run(run(teacher)) == 0
        assert time.monotonic() - began > 1.5, "the live call was waited for"
        told = stats(teacher)
        assert (told["billed"], told["files"], told["batches"]) == (1, 0, 0)


def test_a_gateway_that_starts_anew_is_told_again_what_it_has_forgotten(tmp_path: Path) -> None:
    async def run(teacher: str) -> list[Asked]:
        first = GatewayProcess(batched(teacher, {"gather_seconds": 60.0}), tmp_path)
        url = first.url()
        asked = asyncio.create_task(ask_rows(url, MANY))
        while rows_in_queue(tmp_path) < len(MANY):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        first.kill()
        second = GatewayProcess(batched(teacher, {"gather_seconds": 0.5}), tmp_path, port=int(url.rsplit(":", 1)[1]))
        second.url()
        answers = await asked
        second.stop()
        return answers

    with running(create_app(EchoBrain(), Behaviour())) as teacher:
        answers = asyncio.run(run(teacher))
        assert (stats(teacher)["batches"], stats(teacher)["billed"]) == (1, len(MANY))
    assert texts(answers) == echoes(MANY)


def test_rows_of_a_batch_that_expired_after_its_role_became_live_wait_for_nobody(tmp_path: Path) -> None:
    service = Refusing(create_app(EchoBrain(), Behaviour(batch_faults="expired")), 500, "GET", "/v1/batches/")
    with running(service) as teacher:
        with pytest.raises(OutageError):
            run_rows(batched(teacher), tmp_path, ROWS)
        service.well = True
        answers = asyncio.run(live_again(teacher, tmp_path))
        assert stats(teacher)["billed"] == len(ROWS)
    assert texts(answers) == echoes(ROWS)
    assert rows_in_queue(tmp_path) == 0


def test_a_gateway_whose_journal_cannot_be_written_says_that_it_is_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    async def run(teacher: str) -> list[tuple[int, str]]:
        async with gateway(gateway_config(teacher), tmp_path) as url, httpx.AsyncClient(trust_env=False) as http:
            ready = await http.get(f"{url}/readyz")
            monkeypatch.setattr("qinglan.llm.group_commit.GroupWriter._commit", full)
            with pytest.raises(OutageError, match="disk is full"):
                async with GatewayClient(url, "generate") as client:
                    await client.ask("teacher", messages("1"), row="1")
            later = [await http.get(f"{url}{path}") for path in ("/readyz", "/healthz")]
            return [(answer.status_code, answer.text) for answer in (ready, *later)]

    with running(create_app(EchoBrain(), Behaviour())) as teacher:
        answers = asyncio.run(run(teacher))
        assert stats(teacher)["billed"] == 0
    assert [status for status, _ in answers] == [200, 503, 503]
    assert "Mend the disk" in answers[1][1]


def test_a_call_that_is_stopped_while_it_is_being_journaled_does_not_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run(teacher: str) -> BaseException | Any:
        async with open_gateway(gateway_config(teacher), tmp_path / "journal.sqlite", tmp_path / "r.sqlite") as (
            _,
            paid,
        ):
            sent = Journal.sent

            async def then_stopped(journal: Journal, *given: Any) -> int:
                number = await sent(journal, *given)
                paid.stop()
                return number

            monkeypatch.setattr(Journal, "sent", then_stopped)
            ask = PaidRequest(Entry("ppo", "1", "teacher"), 0, messages("1"), None)
            [ended] = await asyncio.gather(paid.answer(ask), return_exceptions=True)
            return ended

    with running(create_app(EchoBrain(), Behaviour())) as teacher:
        assert isinstance(asyncio.run(run(teacher)), GatewayStopping)
        assert stats(teacher)["asked"] == 0
    report = read_report(tmp_path / "journal.sqlite")
    assert (report["cost"], report["possibly_billed"]) == (0, [])


def test_the_money_of_a_call_that_was_sent_live_as_its_batch_was_made_makes_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, firsts = BatchJournal.make, [1]

    async def raced(book: BatchJournal, *given: Any) -> Any:
        if not firsts:
            return await make(book, *given)
        firsts.pop()
        [row] = book._journal.read("SELECT call, model, sample, request FROM queue LIMIT 1")
        number = await book._journal.sent(Call(*row), Entry("generate", "live", "teacher"), 1.0)
        made = await make(book, *given)
        await book._journal.unanswered(number, "rejected", "", 0.0)
        return made

    async def run(teacher: str) -> tuple[list[Asked], str]:
        async with gateway(batched(teacher), tmp_path) as url, httpx.AsyncClient(trust_env=False) as http:
            return await ask_rows(url, ROWS), (await http.get(f"{url}/metrics")).text

    monkeypatch.setattr(BatchJournal, "make", raced)
    with running(create_app(EchoBrain(), Behaviour())) as teacher:
        answers, metrics = asyncio.run(run(teacher))
        assert (stats(teacher)["batches"], stats(teacher)["billed"]) == (2, len(ROWS))
    assert texts(answers) == echoes(ROWS)
    assert "\nqinglan_money_reserved 0.0\n" in metrics
