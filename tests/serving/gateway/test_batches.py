"""Asks that go by batch: half the price, every row's outcome its own, whatever the batch came to."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from qinglan.errors import BudgetError, OutageError, RowError
from qinglan.llm.client import Answer, GatewayClient
from qinglan.llm.contract import PLANNED_REQUESTS_PATH
from qinglan.llm.journal_reader import read_report
from standins.teacher.app import create_app
from standins.teacher.config import Behaviour
from tests.echo import EchoBrain, gateway, gateway_config, running
from tests.serving.gateway.batching import ask_rows, batched, echoes, messages, run_rows, stats, texts

pytestmark = pytest.mark.slow

ROWS = [str(number) for number in range(20)]


def outcomes(folder: Path) -> dict[str, int]:
    """How the attempts ended."""
    with closing(sqlite3.connect(folder / "journal.sqlite")) as database:
        return dict(database.execute("SELECT outcome, count(*) FROM attempts GROUP BY outcome"))


def test_a_batch_answers_every_row_at_half_the_price_and_no_row_is_a_hit(tmp_path: Path) -> None:
    with running(create_app(EchoBrain(), Behaviour())) as teacher:
        live, told = run_rows(gateway_config(teacher), tmp_path / "live", ROWS)
        answers, report = run_rows(batched(teacher), tmp_path / "batch", ROWS)
        assert (stats(teacher)["files"], stats(teacher)["batches"]) == (2, 1)

    assert texts(answers) == texts(live) == echoes(ROWS)
    assert report["cost"] == pytest.approx(told["cost"] / 2)
    assert (report["answered"], report["hits"], report["batches"]) == (20, 0, [])
    assert not any(answer.cached for answer in answers if isinstance(answer, Answer))
    assert [a.call for a in answers if isinstance(a, Answer)] == [a.call for a in live if isinstance(a, Answer)]
    assert report["exports"] == [{"step": "generate", "artifact": "artifact", "answers": 20}]


def test_what_was_paid_by_batch_is_a_hit_when_it_is_asked_again(tmp_path: Path) -> None:
    with running(create_app(EchoBrain(), Behaviour())) as teacher:
        run_rows(batched(teacher), tmp_path, ROWS)
        again, report = run_rows(batched(teacher), tmp_path, ROWS)
        assert stats(teacher)["batches"] == 1
    assert all(answer.cached for answer in again if isinstance(answer, Answer))
    assert (report["hits"], report["attempts"]) == (20, 20)


def test_equal_prompts_share_one_row_of_the_batch(tmp_path: Path) -> None:
    with running(create_app(EchoBrain(), Behaviour())) as teacher:
        answers, report = run_rows(batched(teacher), tmp_path, ["一/甲", "二", "一/乙"])
        assert stats(teacher)["billed"] == 2
    assert [answer.cached for answer in answers if isinstance(answer, Answer)] == [False, False, True]
    assert (report["attempts"], report["hits"]) == (2, 1)


def test_only_the_steps_that_are_named_wait_for_a_batch(tmp_path: Path) -> None:
    async def run(teacher: str) -> None:
        async with gateway(batched(teacher, {"steps": ["validate"]}), tmp_path) as url:
            assert texts(await ask_rows(url, ["1"])) == echoes(["1"])
            async with GatewayClient(url, "ppo") as client:
                await client.ask("teacher", messages("2"), row="2")

    with running(create_app(EchoBrain(), Behaviour())) as teacher:
        asyncio.run(run(teacher))
        assert (stats(teacher)["billed"], stats(teacher)["batches"]) == (2, 0)


def test_an_ask_that_nobody_announced_waits_for_a_batch_too(tmp_path: Path) -> None:
    async def run(teacher: str) -> list[str]:
        async with gateway(batched(teacher), tmp_path) as url, GatewayClient(url, "generate") as client:
            asks = (client.ask("teacher", messages(row), row=row) for row in ROWS)
            return [answer.text for answer in await asyncio.gather(*asks)]

    with running(create_app(EchoBrain(), Behaviour())) as teacher:
        assert asyncio.run(run(teacher)) == echoes(ROWS)
        assert stats(teacher)["batches"] == 1


def test_more_rows_than_a_file_holds_go_in_several(tmp_path: Path) -> None:
    with running(create_app(EchoBrain(), Behaviour())) as teacher:
        answers, _ = run_rows(batched(teacher, {"requests": 8}), tmp_path, ROWS)
        assert stats(teacher)["batches"] == 3
    assert texts(answers) == echoes(ROWS)


@pytest.mark.parametrize(
    ("fault", "batches", "left"),
    [
        ("expired", 2, {"answered": 20, "rejected": 10}),
        ("missing", 2, {"answered": 20, "lost": 1}),
        ("twice", 1, {"answered": 20}),
        ("stranger", 1, {"answered": 20}),
        ("broken", 2, {"answered": 20, "rejected": 1}),
        ("garbled", 2, {"answered": 20, "lost": 1}),
        ("quota", 3, {"answered": 20, "rejected": 20}),
    ],
)
def test_a_row_without_an_answer_goes_into_the_next_batch_and_no_other_does(
    tmp_path: Path, fault: str, batches: int, left: dict[str, int]
) -> None:
    with running(create_app(EchoBrain(), Behaviour(batch_faults=fault))) as teacher:
        answers, report = run_rows(batched(teacher), tmp_path, ROWS)
        assert stats(teacher)["batches"] == batches
    assert texts(answers) == echoes(ROWS)
    assert outcomes(tmp_path) == left
    assert len(report["possibly_billed"]) == left.get("lost", 0)


def test_a_row_that_the_service_refuses_fails_alone_and_costs_nothing(tmp_path: Path) -> None:
    with running(create_app(EchoBrain(), Behaviour(batch_faults="refused"))) as teacher:
        answers, report = run_rows(batched(teacher), tmp_path, ROWS)
        assert stats(teacher)["batches"] == 1
    failed = [answer for answer in answers if isinstance(answer, RowError)]
    assert [(error.reason, "status 400" in str(error)) for error in failed] == [("rejected", True)]
    assert (report["answered"], report["failed"], outcomes(tmp_path)["rejected"]) == (19, 1, 1)


def test_a_batch_that_fails_its_check_fails_the_row_to_blame_and_the_others_go_again(tmp_path: Path) -> None:
    with running(create_app(EchoBrain(), Behaviour(batch_faults="validation"))) as teacher:
        answers, _ = run_rows(batched(teacher), tmp_path, ROWS)
        assert (stats(teacher)["batches"], stats(teacher)["billed"]) == (2, 19)
    assert isinstance(answers[0], RowError)
    assert "The line is no request" in str(answers[0])
    assert texts(answers[1:]) == echoes(ROWS[1:])
    assert outcomes(tmp_path) == {"answered": 19, "rejected": 20}


def test_a_row_that_no_batch_answers_fails_with_the_reason_after_so_many_tries(tmp_path: Path) -> None:
    with running(create_app(EchoBrain(), Behaviour(batch_faults="expired,expired"))) as teacher:
        answers, report = run_rows(batched(teacher), tmp_path, ROWS)
        assert stats(teacher)["batches"] == 2
    failed = [answer for answer in answers if isinstance(answer, RowError)]
    assert [error.reason for error in failed] == ["batch_expired"] * 5
    assert outcomes(tmp_path) == {"answered": 15, "rejected": 15}
    assert report["cost"] > 0


def test_a_cancelled_batch_keeps_what_it_answered_and_stops_the_run(tmp_path: Path) -> None:
    with running(create_app(EchoBrain(), Behaviour(batch_faults="cancelled"))) as teacher:
        with pytest.raises(OutageError, match="was cancelled at the service"):
            run_rows(batched(teacher), tmp_path, ROWS)
        assert stats(teacher)["batches"] == 1
        assert outcomes(tmp_path) == {"answered": 10, "rejected": 10}
        answers, _ = run_rows(batched(teacher), tmp_path, ROWS)
        assert stats(teacher)["billed"] == 20
    assert texts(answers) == echoes(ROWS)


def test_a_batch_takes_no_more_rows_than_the_budget_holds(tmp_path: Path) -> None:
    with running(create_app(EchoBrain(), Behaviour())) as teacher:
        config = batched(teacher, budget=0.006)
        with pytest.raises(BudgetError, match=r"Raise gateway\.budget"):
            run_rows(config, tmp_path, [str(n) for n in range(200)])
        report = read_report(tmp_path / "journal.sqlite")
        assert 0.005 < report["cost"] <= 0.006
        assert stats(teacher)["batches"] > 1
        answers, _ = run_rows(batched(teacher), tmp_path, [str(n) for n in range(200)])
        assert stats(teacher)["billed"] == 200
    assert all(isinstance(answer, Answer) for answer in answers)


def test_what_an_earlier_run_wanted_and_this_one_does_not_is_not_paid_for(tmp_path: Path) -> None:
    with running(create_app(EchoBrain(), Behaviour())) as teacher:
        with pytest.raises(BudgetError):
            run_rows(batched(teacher, budget=1e-9), tmp_path, ["old 1", "old 2"])
        answers, _ = run_rows(batched(teacher), tmp_path, ["new"])
        assert stats(teacher)["billed"] == 1
    assert texts(answers) == echoes(["new"])


def test_a_call_that_another_role_queued_is_sent_for_whoever_waits_for_it(tmp_path: Path) -> None:
    """Two roles of one model: the judge announced it, its batch expired, and only the teacher still wants it."""

    async def run(teacher: str) -> list[str]:
        config = batched(teacher)
        config = config.model_copy(update={"judge": config.teacher})
        async with gateway(config, tmp_path) as url, httpx.AsyncClient(base_url=url, trust_env=False) as http:
            asks = [{"model": "judge", "messages": messages(row), "row": row} for row in ROWS]
            await http.post(PLANNED_REQUESTS_PATH, json={"step": "generate", "asks": asks})
            while 'status="expired"' not in (await http.get("/metrics")).text:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            async with GatewayClient(url, "generate") as client:
                asked = (client.ask("teacher", messages(row), row=row) for row in ROWS)
                return [one.text for one in await asyncio.wait_for(asyncio.gather(*asked), 60.0)]

    with running(create_app(EchoBrain(), Behaviour(batch_faults="expired"))) as teacher:
        assert asyncio.run(run(teacher)) == echoes(ROWS)
        assert (stats(teacher)["billed"], stats(teacher)["batches"]) == (20, 2)
