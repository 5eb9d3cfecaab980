"""Batches in the journal."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from qinglan.errors import ConfigError
from qinglan.llm.batch.api import REQUEST_LINE_OVERHEAD, BatchProblem, BatchStatus
from qinglan.llm.batch.journal import BatchCall, BatchJournal, refuse_open_batches, rows_that_fit
from qinglan.llm.batch.runner import batch_problem, outcome_without_line, rows_to_resend
from qinglan.llm.paid.journal import Call, Entry, Journal, make_call
from qinglan.llm.paid.journal_reader import read_report
from qinglan.llm.providers.prices import Usage
from tests.servers.small_prepayments import outcomes

ENTRY = Entry("generate", "1", "teacher")


def call(text: str) -> Call:
    return make_call({"model": "echo", "messages": [{"role": "user", "content": text}]}, 0)


def batch_call(text: str) -> BatchCall:
    return BatchCall(call(text), ENTRY._replace(row=text), 0.5)


def with_journal(path: Path, work: Callable[[Journal], Awaitable[object]]) -> None:
    async def run() -> None:
        journal = Journal(path / "journal.sqlite")
        try:
            await work(journal)
        finally:
            journal.close()

    asyncio.run(run())


def test_a_batch_holds_its_money_and_its_calls_until_it_ends(tmp_path: Path) -> None:
    async def work(journal: Journal) -> None:
        pages = BatchJournal(journal)
        number = await journal.sent(call("live"), ENTRY, 1.0)
        await journal.answered(number, call("live").key, b"{}", Usage(), 0.1)
        batch = await pages.make("teacher", [batch_call("a"), batch_call("b")], 0.5)

        assert journal.spent() == pytest.approx(1.1)
        assert pages.settled_keys() == {call(text).key for text in ("live", "a", "b")}
        assert pages.open() == [batch]
        assert [(row.row, row.is_open) for row in pages.rows(batch)] == [("a", True), ("b", True)]
        await pages.note(batch._replace(file="file-1", status="uploaded"))
        with pytest.raises(ConfigError, match="is not fetched yet"):
            await refuse_open_batches(journal)

    with_journal(tmp_path, work)


def test_an_abandoned_batch_may_have_been_billed_only_if_it_was_uploaded(tmp_path: Path) -> None:
    async def work(journal: Journal) -> None:
        pages = BatchJournal(journal)
        await pages.make("teacher", [batch_call("a")], 0.5)
        uploaded = await pages.make("teacher", [batch_call("b")], 0.5)
        await pages.note(uploaded._replace(file="file-1", status="uploaded"))
        await pages.give_up()

        assert (pages.open(), journal.spent()) == ([], 0.5)
        await refuse_open_batches(journal)

    with_journal(tmp_path, work)
    assert read_report(tmp_path / "journal.sqlite")["possibly_billed"] == ["generate/b"]


def test_a_batch_that_was_never_uploaded_does_not_stop_the_live_calls(tmp_path: Path) -> None:
    async def work(journal: Journal) -> None:
        pages = BatchJournal(journal)
        await pages.make("teacher", [batch_call("a")], 0.5)

        await refuse_open_batches(journal)

        assert (pages.open(), journal.spent(), pages.settled_keys()) == ([], 0.0, set())

    with_journal(tmp_path, work)
    assert outcomes(tmp_path) == {"rejected": 1}


def test_a_batch_takes_of_the_calls_what_the_file_and_the_money_hold() -> None:
    calls = [BatchCall(Call("k", "m", 0, b"x" * 100), ENTRY, 1.0) for _ in range(10)]
    line = 100 + REQUEST_LINE_OVERHEAD
    assert rows_that_fit(calls, 100.0, 50, 10**6) == 10
    assert rows_that_fit(calls, 3.5, 50, 10**6) == 3
    assert rows_that_fit(calls, 100.0, 4, 10**6) == 4
    assert rows_that_fit(calls, 100.0, 50, 2 * line) == 2
    assert rows_that_fit(calls, 0.5, 50, 10**6) == 0


@pytest.mark.parametrize(
    ("status", "reason", "billed"),
    [
        ("completed", "missing", True),
        ("expired", "expired", False),
        ("cancelled", "cancelled", False),
        ("failed", "not run", False),
    ],
)
def test_a_row_without_a_line_has_what_the_batchs_end_means(status: str, reason: str, billed: bool) -> None:
    outcome = outcome_without_line(status, None)
    assert (outcome.reason, outcome.maybe_billed) == (reason, billed)


@pytest.mark.parametrize(
    ("status", "problems", "answered", "resend", "says"),
    [
        ("completed", (), 9, 0, ""),
        ("completed", (), 0, 0, "none of 10 rows was answered"),
        ("expired", (), 3, 0, "is expired at the service: 3 of 10"),
        ("cancelled", (), 5, 0, "is cancelled at the service"),
        ("failed", (BatchProblem("token_limit_exceeded", "too many", None),), 0, 5, "too many"),
        ("failed", (BatchProblem("billing_hard_limit_reached", "no money", None),), 0, 0, "no money"),
        ("failed", (), 0, 0, "does not say why"),
        ("failed", (BatchProblem("invalid", "bad", 3),), 0, 10, "bad"),
    ],
)
def test_a_batch_that_went_wrong_is_sent_again_or_told(
    status: str, problems: tuple[BatchProblem, ...], answered: int, resend: int, says: str
) -> None:
    ended = BatchStatus("b", status, (), 0, 10, problems)
    assert rows_to_resend(ended, 10) == resend
    result = batch_problem(ended, answered, 10)
    assert says in result if says else not result
