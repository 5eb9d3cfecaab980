import asyncio
import random
import sqlite3
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import orjson
import pytest

from qinglan.errors import ConfigError, DataError, OutageError
from qinglan.llm.paid.group_commit import GroupWriter, open_database
from qinglan.llm.paid.journal import Call, Entry, Journal, make_call
from qinglan.llm.paid.journal_reader import journal_digest, read_attempts, read_report
from qinglan.llm.providers.prices import Usage

ENTRY = Entry("generate", "行1", "teacher")


def call(text: str, sample: int = 0, **parameters: object) -> Call:
    return make_call({"model": "m", "messages": [{"role": "user", "content": text}], **parameters}, sample)


async def pay(journal: Journal, text: str, entry: Entry = ENTRY, cost: float = 0.25) -> Call:
    """A call that was answered with its own text."""
    paid = call(text)
    attempt = await journal.sent(paid, entry, reserved=1.0)
    await journal.answered(attempt, paid.key, orjson.dumps({"said": text}), Usage(10, 2, 5, 1), cost)
    return paid


def with_journal(path: Path, work: Callable[[Journal], Awaitable[object]]) -> None:
    async def run() -> None:
        journal = Journal(path)
        try:
            await work(journal)
        finally:
            journal.close()

    asyncio.run(run())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.sqlite"


def test_a_call_is_named_by_everything_that_is_sent_and_by_nothing_else() -> None:
    same = make_call({"messages": [{"content": "问", "role": "user"}], "model": "m"}, 0)
    assert call("问").key == same.key
    variants = [
        call("问?"),
        call("问", sample=1),
        call("问", temperature=0.3),
        call("问", response_format={"type": "x"}),
    ]
    assert len({same.key, *(other.key for other in variants)}) == 5


def test_an_answer_outlives_the_process_that_paid_for_it(path: Path) -> None:
    async def first(journal: Journal) -> None:
        await pay(journal, "问")

    async def second(journal: Journal) -> None:
        assert journal.answer(call("问").key) == orjson.dumps({"said": "问"})
        assert journal.answer(call("另问").key) is None
        assert journal.spent() == 0.25

    with_journal(path, first)
    with_journal(path, second)


def test_an_attempt_without_an_outcome_is_charged_at_its_worst_and_its_row_is_named(path: Path) -> None:
    async def die(journal: Journal) -> None:
        await journal.sent(call("问"), ENTRY, reserved=0.5)

    async def resume(journal: Journal) -> None:
        assert journal.spent() == 0.5
        assert journal.answer(call("问").key) is None
        assert read_report(path)["possibly_billed"] == ["generate/行1"]
        await pay(journal, "问")
        assert journal.spent() == 0.75

    with_journal(path, die)
    with_journal(path, resume)
    report = read_report(path)
    assert (report["calls"], report["answered"], report["attempts"]) == (1, 1, 2)
    assert report["possibly_billed"] == ["generate/行1"]


def test_a_rejected_attempt_costs_nothing_and_a_failed_call_is_no_answer(path: Path) -> None:
    async def work(journal: Journal) -> None:
        attempt = await journal.sent(call("问"), ENTRY, reserved=0.5)
        await journal.unanswered(attempt, "rejected", "status 400", 0.0)
        await journal.failed(call("问").key, "rejected", "raw")
        assert journal.answer(call("问").key) is None
        assert journal.spent() == 0

    with_journal(path, work)
    assert read_report(path)["failed"] == 1


def test_an_attempts_time_runs_from_its_sending_to_its_outcome_and_a_lost_one_has_none(path: Path) -> None:
    async def ask(journal: Journal) -> None:
        number = await journal.sent(call("一"), ENTRY, reserved=1.0)
        await asyncio.sleep(0.2)
        await journal.answered(number, call("一").key, b"{}", Usage(), 0.25)
        await journal.sent(call("二"), ENTRY._replace(row="行2"), reserved=1.0)
        await journal.sent(call("三"), ENTRY._replace(step="evaluate"), reserved=1.0)

    with_journal(path, ask)
    with_journal(path, lambda _: asyncio.sleep(0))
    answered, lost = read_attempts(path, "generate", "teacher")

    assert (answered.row, answered.outcome, answered.cost) == ("行1", "answered", 0.25)
    assert answered.seconds is not None and answered.seconds >= 0.2
    assert lost[:4] == ("行2", "lost", 1.0, None)


def test_a_report_counts_money_tokens_and_hits_by_step_and_role(path: Path) -> None:
    async def work(journal: Journal) -> None:
        paid = await pay(journal, "问", Entry("generate", "1", "teacher"), cost=0.5)
        await pay(journal, "评", Entry("validate", "1", "judge"), cost=0.125)
        for row in ("2", "3", "3"):
            journal.hit(paid.key, Entry("generate", row, "teacher"))

    with_journal(path, work)
    report = read_report(path)
    assert (report["hits"], report["hit_rate"], report["cost"]) == (3, 0.6, 0.625)
    assert (report["input_tokens"], report["cached_tokens"], report["output_tokens"]) == (20, 4, 10)
    assert report["by_step"] == [
        {"step": "generate", "role": "teacher", "attempts": 1, "answered": 1, "hits": 3, "cost": 0.5},
        {"step": "validate", "role": "judge", "attempts": 1, "answered": 1, "hits": 0, "cost": 0.125},
    ]


def test_a_steps_answers_are_in_one_artifact_and_telling_it_twice_changes_nothing(path: Path) -> None:
    async def work(journal: Journal) -> None:
        await pay(journal, "一", Entry("generate", "1", "teacher"))
        await pay(journal, "二", Entry("generate", "2", "teacher"))
        await pay(journal, "三", Entry("validate", "1", "judge"))
        assert await journal.exported("generate", "a" * 64) == 2
        assert await journal.exported("generate", "a" * 64) == 0

    with_journal(path, work)
    assert read_report(path)["exports"] == [{"step": "generate", "artifact": "a" * 64, "answers": 2}]


def test_the_digest_of_the_answers_does_not_depend_on_their_order(tmp_path: Path) -> None:
    texts = [f"问{number}" for number in range(20)]
    digests = set()
    for seed in (1, 2):
        path, order = tmp_path / f"{seed}.sqlite", random.Random(seed).sample(texts, len(texts))

        async def work(journal: Journal, order: list[str] = order) -> None:
            for text in order:
                await pay(journal, text)

        with_journal(path, work)
        digests.add(journal_digest(path))
    assert len(digests) == 1


@pytest.mark.slow
def test_a_second_owner_is_refused_in_this_process_and_in_another(path: Path) -> None:
    other = (
        "import asyncio, pathlib; from qinglan.llm.paid.journal import Journal\n"
        f"async def run(): Journal(pathlib.Path({str(path)!r}))\nasyncio.run(run())"
    )

    async def work(_: Journal) -> None:
        with pytest.raises(ConfigError, match="another gateway owns this journal"):
            Journal(path)
        child = await asyncio.create_subprocess_exec(sys.executable, "-c", other, stderr=asyncio.subprocess.PIPE)
        errors = (await child.communicate())[1]
        assert b"another gateway owns this journal" in errors

    with_journal(path, work)
    with_journal(path, lambda journal: journal.exported("generate", "x"))


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("PRAGMA user_version = 99", "version 99; this release writes version 3"),
        ("PRAGMA application_id = 5", "a database, but no journal"),
    ],
)
def test_a_journal_of_another_version_and_another_database_are_left_alone(
    path: Path, statement: str, message: str
) -> None:
    with_journal(path, lambda journal: journal.exported("generate", "x"))
    database = sqlite3.connect(path)
    database.execute(statement)
    database.close()
    before = path.read_bytes()

    async def reopen() -> None:
        with pytest.raises(DataError, match=message):
            Journal(path)

    asyncio.run(reopen())
    assert path.read_bytes() == before


def test_writes_that_wait_together_share_a_transaction(tmp_path: Path) -> None:
    commits: list[str] = []

    async def run() -> int:
        database = open_database(tmp_path / "db.sqlite", "FULL")
        database.execute("CREATE TABLE t (n)")
        database.set_trace_callback(lambda statement: commits.append(statement) if statement == "COMMIT" else None)
        writer = GroupWriter(database, "db")
        await asyncio.gather(*(writer.write(("INSERT INTO t VALUES (?)", (n,))) for n in range(1000)))
        count: int = sqlite3.connect(tmp_path / "db.sqlite").execute("SELECT count(*) FROM t").fetchone()[0]
        writer.close()
        return count

    assert asyncio.run(run()) == 1000
    assert len(commits) < 250


def test_a_journal_that_cannot_be_written_stops_the_run_instead_of_forgetting(tmp_path: Path) -> None:
    async def run() -> None:
        writer = GroupWriter(open_database(tmp_path / "db.sqlite", "FULL"), "db.sqlite")
        with pytest.raises(OutageError, match=r"db\.sqlite: cannot be written \(no such table"):
            await writer.write(("INSERT INTO missing VALUES (1)", ()))
        with pytest.raises(OutageError, match="possibly billed"):
            writer.write(("SELECT 1", ()))
        writer.close()

    asyncio.run(run())


def test_an_answer_that_was_paid_for_outlives_whatever_the_same_call_comes_to_later(path: Path) -> None:
    async def work(journal: Journal) -> None:
        late = await journal.sent(call("问"), ENTRY, reserved=1.0)
        paid = await pay(journal, "问")
        answer_before = journal.answer(paid.key)
        assert answer_before is not None
        await journal.unanswered(late, "rejected", "no", 0.0)
        await journal.failed(paid.key, "rejected", "raw")
        assert journal.answer(paid.key) == answer_before

    with_journal(path, work)
