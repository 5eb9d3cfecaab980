"""A comparison's budget is one for all that its folder ever paid for, whatever the settings were called then."""

import asyncio
from pathlib import Path

import orjson
import pytest

from commands.compare_teachers.config import TeachersConfig
from commands.compare_teachers.run import LEAST, budget_left, journal_of
from pipelines.execute.rundir import RunDir
from pipelines.lines.config import load_config
from pipelines.lines.rewriter import RunConfig
from qinglan.llm.paid.journal import Entry, Journal, make_call
from qinglan.llm.providers.prices import Usage
from tests.servers.echo_servers import PRICE


def teachers(temperature: float) -> TeachersConfig:
    models = [{"model": name, "price": PRICE, "temperature": temperature} for name in ("one", "two")]
    return TeachersConfig.parse({"teachers": [{"name": x["model"], "model": x} for x in models]}, "teachers.yaml")


def settings(tmp_path: Path) -> RunConfig:
    config = load_config("fivedoctors", "gpt", questions=tmp_path / "q.xlsx")
    return config.model_copy(update={"gateway": config.gateway.model_copy(update={"budget": 10.0})})


def pay(path: Path, cost: float) -> None:
    """A journal as a gateway leaves it: one answer, and one call that never got any."""

    async def run() -> None:
        journal = Journal(path)
        for text, paid in (("答", cost / 2), ("失", None)):
            call = make_call({"model": "m", "messages": [{"role": "user", "content": text}]}, 0)
            attempt = await journal.sent(call, Entry("generate", text, "teacher"), reserved=cost / 2)
            if paid is not None:
                await journal.answered(attempt, call.key, orjson.dumps({}), Usage(1, 0, 1, 0), paid)
        journal.close()

    path.parent.mkdir(parents=True, exist_ok=True)
    asyncio.run(run())


def test_the_cost_of_teachers_of_earlier_settings_counts_against_the_budget(tmp_path: Path) -> None:
    config, run = settings(tmp_path), RunDir(tmp_path / "out")
    before, now = teachers(0.7), teachers(0.2)
    pay(run.journal, 1.0)
    pay(journal_of(before.teachers[0], config, run), 2.0)
    pay(journal_of(before.teachers[1], config, run), 3.0)
    mine = journal_of(now.teachers[0], config, run)
    pay(mine, 0.5)

    assert budget_left(config, run, mine) == pytest.approx(10.0 - 6.0)  # its own gateway counts its own journal
    assert budget_left(config, run, run.journal) == pytest.approx(10.0 - 5.5)
    pay(journal_of(now.teachers[1], config, run), 8.0)
    assert budget_left(config, run, mine) == LEAST
