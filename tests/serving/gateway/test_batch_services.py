"""Services that speak of batches a little differently, or badly: told or overcome, and nothing is paid twice."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from qinglan.errors import BudgetError, OutageError, RowError
from qinglan.llm.batch_journal import BatchJournal
from qinglan.llm.client import Answer, GatewayClient, PlannedRequest
from standins.teacher.app import create_app
from standins.teacher.batches import FakeBatchService
from standins.teacher.config import Behaviour
from tests.echo import EchoBrain, gateway, gateway_config, running
from tests.serving.gateway.batching import Asked, ask_rows, batched, echoes, messages, run_rows, stats, texts
from tests.serving.gateway.test_batch_ends import Refusing

pytestmark = pytest.mark.slow

ROWS = [str(number) for number in range(6)]
Edit = Callable[[bytes], bytes]


class Editing:
    """A service some of whose answers are changed on their way."""

    def __init__(self, app: Any, method: str, ends: str, edit: Edit) -> None:
        self._app, self._method, self._ends, self._edit = app, method, ends, edit

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["method"] != self._method or not scope["path"].endswith(self._ends):
            await self._app(scope, receive, send)
            return
        body, start = bytearray(), dict[str, Any]()

        async def kept(message: Any) -> None:
            start.update(message if message["type"] == "http.response.start" else {})
            body.extend(message.get("body", b""))

        await self._app(scope, receive, kept)
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": start["status"], "headers": headers})
        await send({"type": "http.response.body", "body": self._edit(bytes(body))})


def echoing(**behaviour: Any) -> Any:
    return create_app(EchoBrain(), Behaviour(**behaviour))


def as_json(change: Callable[[Any], Any]) -> Edit:
    def edit(body: bytes) -> bytes:
        value = orjson.loads(body)
        return orjson.dumps(change(value) or value)

    return edit


def in_lines(change: Callable[[Any], Any]) -> Edit:
    def edit(body: bytes) -> bytes:
        return b"".join(as_json(change)(line) + b"\n" for line in body.splitlines())

    return edit


def once(spoiled: Edit) -> Edit:
    left = [spoiled]
    return lambda body: left.pop()(body) if left else body


def set_status(status: Any) -> Callable[[Any], Any]:
    return lambda line: line["response"].update(status_code=status)


@pytest.mark.parametrize(
    "edit",
    [
        in_lines(set_status("200")),
        in_lines(set_status(201)),
        in_lines(lambda line: line["response"].pop("status_code") and None),
        lambda body: b"\xef\xbb\xbf" + body,
        once(lambda _: b"<html>busy</html>"),
        once(lambda _: b""),
    ],
    ids=[
        "status in words",
        "another good status",
        "no status",
        "byte order mark",
        "a page at first",
        "empty at first",
    ],
)
def test_an_answer_that_was_paid_for_is_read_however_its_line_comes(tmp_path: Path, edit: Edit) -> None:
    with running(Editing(echoing(), "GET", "/content", edit)) as teacher:
        answers, report = run_rows(batched(teacher), tmp_path, ROWS)
        assert stats(teacher)["billed"] == len(ROWS)
    assert texts(answers) == echoes(ROWS)
    assert report["possibly_billed"] == []


@pytest.mark.parametrize(
    "edit",
    [
        as_json(lambda told: {**told, "data": [{**one, "metadata": None} for one in told["data"]]}),
        once(as_json(lambda told: {**told, "data": []})),
    ],
    ids=["keeps no metadata", "is a look behind"],
)
def test_a_batch_whose_creation_nobody_heard_of_is_found_in_a_listing_that(tmp_path: Path, edit: Edit) -> None:
    app = Refusing(echoing(), 500, "POST", "/v1/batches", acts=True, times=1)
    with running(Editing(app, "GET", "/v1/batches", edit)) as teacher:
        answers, _ = run_rows(batched(teacher), tmp_path, ROWS)
        assert (stats(teacher)["batches"], stats(teacher)["billed"]) == (1, len(ROWS))
    assert texts(answers) == echoes(ROWS)


def test_a_listing_that_goes_in_a_circle_is_told(tmp_path: Path) -> None:
    app = Refusing(echoing(), 500, "POST", "/v1/batches", acts=True, times=1)
    circle = as_json(lambda told: {"data": [{"id": "batch_of_somebody"}], "has_more": True})
    with (
        running(Editing(app, "GET", "/v1/batches", circle)) as teacher,
        pytest.raises(OutageError, match="list of batches has no end"),
    ):
        run_rows(batched(teacher), tmp_path, ROWS)


@pytest.mark.parametrize("word", ["canceled", "CANCELLED"])
def test_a_status_in_another_spelling_is_understood(tmp_path: Path, word: str) -> None:
    def spelled(told: Any) -> Any:
        return {**told, "status": word} if told.get("status") == "cancelled" else told

    service = Editing(echoing(batch_faults="cancelled"), "GET", "0" * 24, as_json(spelled))
    with running(service) as teacher, pytest.raises(OutageError, match="was cancelled at the service"):
        run_rows(batched(teacher), tmp_path, ROWS)


def test_a_status_that_nobody_knows_is_told_and_not_waited_for_without_a_word(tmp_path: Path) -> None:
    service = Editing(echoing(), "GET", "0" * 24, as_json(lambda told: {**told, "status": "resting"}))
    with running(service) as teacher, pytest.raises(OutageError, match=r"is still 'resting'.*polled on"):
        run_rows(batched(teacher), tmp_path, ROWS)


def test_a_budget_that_ends_is_an_error_whatever_sums_leave_behind(tmp_path: Path) -> None:
    rows = [str(number) + "长" * (number * 7 % 23) for number in range(150)]
    for seed in range(3):
        with running(echoing()) as teacher, pytest.raises(BudgetError):
            run_rows(batched(teacher, budget=0.004 + seed * 1e-4), tmp_path / str(seed), rows)


def test_tokens_queued_over_all_batches_are_waited_for_and_no_batch_is_made_smaller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The account takes ten rows at once, whichever batches they are in."""
    sizes: list[int] = []
    work = FakeBatchService._work

    async def crowded(desk: FakeBatchService, batch: Any, fault: Any) -> None:
        sizes.append(len(desk._places(batch["input_file_id"])))
        batch["rows"] = sizes[-1]
        others = (one.get("rows", 0) for one in desk.batches.values() if one["status"] == "in_progress")
        if sizes[-1] + sum(others) > 10:
            await work(desk, batch, "quota")
            return
        batch["status"] = "in_progress"
        await asyncio.sleep(0.5)
        await work(desk, batch, fault)

    monkeypatch.setattr(FakeBatchService, "_work", crowded)
    rows = [str(number) for number in range(24)]
    with running(echoing()) as teacher:
        answers, _ = run_rows(batched(teacher, {"requests": 8}), tmp_path, rows)
    assert texts(answers) == echoes(rows)
    assert set(sizes) == {8}


def test_a_disk_that_was_full_for_a_moment_is_written_when_it_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, full = BatchJournal.write_file, [OSError(28, "No space left on device")]

    def flaky(book: BatchJournal, *given: Any) -> None:
        if full:
            raise full.pop()
        write(book, *given)

    monkeypatch.setattr(BatchJournal, "write_file", flaky)
    with running(echoing()) as teacher:
        answers, _ = run_rows(batched(teacher), tmp_path, ROWS)
    assert texts(answers) == echoes(ROWS)


def test_an_error_of_ours_is_told_to_every_later_stage_and_to_the_probes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("a bug")

    async def run(teacher: str) -> list[Any]:
        import httpx

        monkeypatch.setattr(BatchJournal, "steps", broken)
        async with gateway(batched(teacher), tmp_path) as url, httpx.AsyncClient(trust_env=False) as http:
            told: list[Any] = []
            for _ in range(2):
                with pytest.raises(OutageError, match=r"a bug.*start it again") as error:
                    await ask_rows(url, ROWS)
                told.append(str(error.value))
            return [*told, (await http.get(f"{url}/readyz")).status_code]

    with running(echoing()) as teacher:
        assert asyncio.run(run(teacher))[-1] == 503


def test_a_service_that_counts_more_tokens_than_there_are_is_charged_at_the_worst(tmp_path: Path) -> None:
    def boasts(body: bytes) -> bytes:
        return body.replace(b'"prompt_tokens":', b'"prompt_tokens":1000000000000000000000', 1)

    with running(Editing(echoing(), "POST", "/completions", boasts)) as teacher:
        answers, report = run_rows(gateway_config(teacher), tmp_path, ["1"])
    assert texts(answers) == echoes(["1"])
    assert 0 < report["cost"] < 1


def test_a_row_that_is_larger_than_the_gateway_takes_fails_alone(tmp_path: Path) -> None:
    def said(row: str) -> list[Any]:
        return [{"role": "user", "content": "长" * 10**6}] if row == "1" else messages(row)

    async def run(teacher: str) -> list[Asked]:
        async with gateway(batched(teacher), tmp_path) as url, GatewayClient(url, "generate") as client:
            await client.ahead(lambda: (PlannedRequest("teacher", row, said(row)) for row in ROWS))
            asks = (client.ask("teacher", said(row), row=row) for row in ROWS)
            return list(await asyncio.gather(*asks, return_exceptions=True))

    with running(echoing()) as teacher:
        answers = asyncio.run(run(teacher))
    assert isinstance(answers[1], RowError)
    assert [isinstance(one, Answer) for one in answers] == [True, False, True, True, True, True]


@pytest.mark.parametrize("status", [404, 400, 401])
def test_a_run_after_batch_was_taken_out_waits_until_it_is_known_that_nothing_comes(
    tmp_path: Path, status: int
) -> None:
    """Its first ask comes at once, before the batch has been looked at."""
    with running(Refusing(echoing(), status, "GET", "/v1/batches/")) as teacher:
        with pytest.raises(OutageError):
            run_rows(batched(teacher), tmp_path, ROWS)
        answers, report = run_rows(gateway_config(teacher, limits={"attempts": 3}), tmp_path, ROWS)
    assert texts(answers) == echoes(ROWS)
    assert len(report["possibly_billed"]) == len(ROWS)


def test_who_waits_for_a_batch_of_a_step_that_is_live_again_is_told_by_a_batch_of_its_own(tmp_path: Path) -> None:
    """validate's batch expires half done under a gateway whose batches are for evaluate alone."""

    async def leave(teacher: str) -> None:
        async with gateway(batched(teacher, {"steps": ["validate"]}), tmp_path) as url:
            asked = asyncio.create_task(ask_rows(url, ROWS, "validate"))
            async with GatewayClient(url, "report") as client:
                while not [one for one in (await client.report())["batches"] if one["batch"]]:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)

    async def other(teacher: str) -> list[Asked]:
        async with gateway(batched(teacher, {"steps": ["evaluate"]}), tmp_path) as url:
            return await asyncio.wait_for(ask_rows(url, ROWS, "evaluate"), 60)

    with running(echoing(batch_seconds=2.0, batch_faults="expired")) as teacher:
        asyncio.run(leave(teacher))
        answers = asyncio.run(other(teacher))
        assert stats(teacher)["billed"] == len(ROWS)
    assert texts(answers) == echoes(ROWS)


def test_a_batch_of_a_role_that_is_live_again_holds_up_no_other_role(tmp_path: Path) -> None:
    """The judge's batch is not to be had; the teacher's rows of the same step are."""

    async def run(config: Any, role: Any) -> None:
        async with gateway(config, tmp_path) as url, GatewayClient(url, "generate") as client:
            await asyncio.wait_for(
                client.ahead(lambda: (PlannedRequest(role, row, said(role, row)) for row in ROWS)), 30
            )

    def said(role: str, row: str) -> list[Any]:
        return messages(f"{role} {row}")

    service = Refusing(echoing(), 500, "GET", f"/v1/batches/batch_{0:024d}")
    with running(service) as teacher:
        config = batched(teacher)
        live = gateway_config(teacher).teacher
        with pytest.raises(OutageError):
            asyncio.run(run(config.model_copy(update={"judge": config.teacher, "teacher": live}), "judge"))
        asyncio.run(run(config.model_copy(update={"judge": live}), "teacher"))
        assert stats(teacher)["batches"] == 2
