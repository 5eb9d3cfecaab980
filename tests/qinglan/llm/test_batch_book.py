"""A call live and in a batch: whichever is committed first has it, and the other leaves it alone."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from qinglan.llm.batch_journal import Batch, BatchJournal
from qinglan.llm.batch_queue import BatchQueue, DeferredCall
from qinglan.llm.journal import Call, Entry, Journal, make_call
from qinglan.llm.prices import Usage

ENTRY = Entry("generate", "1", "teacher")


def call(text: str) -> Call:
    return make_call({"model": "echo", "messages": [{"role": "user", "content": text}]}, 0)


def with_book(path: Path, work: Callable[[Journal, BatchQueue, BatchJournal], Awaitable[None]]) -> None:
    async def run() -> None:
        journal = Journal(path / "journal.sqlite")
        try:
            await work(journal, BatchQueue(journal), BatchJournal(journal))
        finally:
            journal.close()

    asyncio.run(run())


async def queue(pages: BatchQueue, *texts: str) -> None:
    await pages.want((DeferredCall(call(text), ENTRY._replace(row=text), 0.5) for text in texts), ahead=True)


async def make(pages: BatchQueue, book: BatchJournal) -> tuple[Batch, float]:
    return await book.make("teacher", await pages.queued("teacher", 100), 0.5)


def test_what_was_sent_live_since_the_queue_was_looked_at_stays_out_of_the_batch_with_its_money(
    tmp_path: Path,
) -> None:
    async def work(journal: Journal, pages: BatchQueue, book: BatchJournal) -> None:
        await queue(pages, "live", "answered", "waits")
        taken = await pages.queued("teacher", 100)
        await journal.sent(call("live"), ENTRY, 1.0)
        number = await journal.sent(call("answered"), ENTRY, 1.0)
        await journal.answered(number, call("answered").key, b"{}", Usage(), 0.1)

        batch, money = await book.make("teacher", taken, 0.5)

        assert (len(taken), batch.rows, money) == (3, 1, 0.5)
        assert [one.call for one in book.unsettled(batch, 10)] == [call("waits").key]
        assert book.open() == [batch]
        assert pages.left("generate", ["teacher"]) == {"waiting": 0, "sent": 1}

    with_book(tmp_path, work)


def test_a_batch_may_have_no_row_in_the_end(tmp_path: Path) -> None:
    async def work(journal: Journal, pages: BatchQueue, book: BatchJournal) -> None:
        await queue(pages, "live")
        taken = await pages.queued("teacher", 100)
        await journal.sent(call("live"), ENTRY, 1.0)
        batch, money = await book.make("teacher", taken, 0.5)
        assert (batch.rows, money) == (0, 0.0)

    with_book(tmp_path, work)


def test_what_a_batch_has_taken_is_not_sent_live_but_by_training(tmp_path: Path) -> None:
    async def work(journal: Journal, pages: BatchQueue, book: BatchJournal) -> None:
        await queue(pages, "问")
        await make(pages, book)
        assert await journal.sent(call("问"), ENTRY, 1.0) == 0
        assert await journal.sent(call("问"), ENTRY._replace(step="ppo"), 1.0, beside_batch=True) > 0

    with_book(tmp_path, work)
