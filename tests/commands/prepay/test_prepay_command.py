"""`qinglan prepay` from the sheet to a run that pays nothing: asked, paid once, killed at any point, given up."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from components.data.generate.stage import generate
from components.data.validate.stage import _need
from pipelines.lines.config import load_config
from pipelines.lines.rewriter import RunConfig
from qinglan.files.files import dump_line, read_jsonl
from qinglan.llm.client import GatewayClient
from qinglan.llm.paid.journal_reader import read_report
from qinglan.rag.contract import Passage
from qinglan.rows.rows import Rewrite
from tests.commands.conftest import Here
from tests.processes.forkserver import KILL
from tests.servers.echo_servers import PRICE, GatewayProcess, running
from tests.servers.small_prepayments import Meddled, echoing, outcomes, short_pauses, stats

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forks")]

ROWS = 12
NEEDS = 8
"""Rows whose sheet states no need."""


@pytest.fixture(autouse=True)
def pauses() -> Iterator[None]:
    with short_pauses():
        yield


class World:
    """A sheet, a knowledge base, and a profile whose models are at some address."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.run = folder, folder / "run"
        self.questions, self.knowledge_base = folder / "questions.jsonl", folder / "kb.jsonl"
        rows = [
            {
                "question": f"那它一天吃几次{n}",
                "need": "" if n < NEEDS else "一天吃几次",
                "split": "train",
                "id": f"r{n}",
            }
            for n in range(ROWS)
        ]
        self.questions.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
        self.knowledge_base.write_bytes(dump_line(Passage(id="k1", title="虾青素", content="一天一次")))

    def words(self, teacher: str, *more: str, **gateway: Any) -> list[str]:
        """Words of the command, for models at this address."""
        model = {"base_url": f"{teacher}/v1", "model": "echo", "price": PRICE, "max_output_tokens": 100}
        profile = self.folder / "profile.yaml"
        profile.write_text(yaml.safe_dump({"gateway": {"teacher": model, "judge": model, **gateway}}), "utf-8")
        return [
            "prepay", "fivedoctors", "--profile", str(profile), "--questions", str(self.questions),
            "--knowledge-base", str(self.knowledge_base), "--out", str(self.run), *more,
        ]  # fmt: skip

    def config(self) -> RunConfig:
        profile = str(self.folder / "profile.yaml")
        return load_config("fivedoctors", profile, questions=self.questions, knowledge_base=self.knowledge_base)

    def generate(self, folder: Path) -> tuple[Any, list[bytes]]:
        """The generate stage on that folder's journal, and the judge's needs as validate asks for them."""
        folder.mkdir(exist_ok=True)
        config = self.config()
        gateway = GatewayProcess(config.gateway, folder)
        url = gateway.url()
        try:
            counts = generate(
                self.questions, folder / "rewrites", folder / "table", folder / "bad", config.generate, url
            )
            asyncio.run(self._ask_needs(url, folder / "rewrites"))
        finally:
            gateway.stop()
        return counts, [(folder / name).read_bytes() for name in ("rewrites", "bad")]

    async def _ask_needs(self, url: str, rewrites: Path) -> None:
        async with GatewayClient(url, "validate") as client:
            await asyncio.gather(*(_need(client, row, "") for _, row in read_jsonl(rewrites, Rewrite)))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_after_a_prepayment_the_stages_pay_nothing_and_write_the_bytes_that_they_write_live(
    world: World, here: Here
) -> None:
    with running(echoing()) as teacher:
        words = world.words(teacher, "--yes", "--json")
        live, live_bytes = world.generate(world.folder / "live")
        before = stats(teacher)["billed"]
        ended = here(*words)
        billed = stats(teacher)["billed"] - before
        prepaid, prepaid_bytes = world.generate(world.run)
        assert stats(teacher)["billed"] == before + billed

    result = orjson.loads(ended.out.splitlines()[-1])
    assert (ended.code, result["answered"], result["unpaid"], billed) == (0, ROWS + NEEDS, [], ROWS + NEEDS)
    assert f"generate: {ROWS} rewrites by echo: about" in ended.errors
    assert f"validate: {NEEDS} needs by echo: about" in ended.errors
    assert "completed, 12 of 12 rows" in ended.errors
    assert (prepaid._replace(journal_answers=0), prepaid.journal_answers) == (live, ROWS)
    assert prepaid_bytes == live_bytes
    costs = [read_report(folder / "journal.sqlite")["cost"] for folder in (world.folder / "live", world.run)]
    assert costs[1] == pytest.approx(costs[0] / 2)


def test_a_sheet_that_a_whole_run_refuses_is_said_before_the_price(world: World, here: Here) -> None:
    with running(echoing()) as teacher:
        ended = here(*world.words(teacher))

    warning, price = "serves one with --until convert alone.", f"generate: {ROWS} rewrites by echo: about"
    assert "! The sheet has 12 rows for training, and a step of PPO takes" in ended.errors
    assert -1 < ended.errors.find(warning) < ended.errors.find(price)


def test_nothing_is_sent_without_a_yes_nor_above_the_budget(world: World, here: Here) -> None:
    with running(echoing()) as teacher:
        unasked = here(*world.words(teacher))
        poor = here(*world.words(teacher, "--yes", budget=1e-6))
        assert stats(teacher)["files"] == 0
    assert (unasked.code, poor.code) == (2, 5)
    assert "Look at the price, then add --yes" in unasked.errors
    assert "Nothing was sent" in poor.errors


def test_a_batch_that_expired_is_an_outage_whose_answers_are_kept(world: World, here: Here) -> None:
    with running(echoing(batch_fault="expired")) as teacher:
        ended = here(*world.words(teacher, "--yes"))
        assert (ended.code, "is expired at the service" in ended.errors) == (4, True)
        assert "are left to `qinglan run`" in ended.out
        again = here(*world.words(teacher, "--yes"))
        assert (again.code, stats(teacher)["billed"]) == (0, ROWS + NEEDS)


def test_batches_that_are_given_up_count_as_possibly_billed_and_the_run_goes_live(world: World, here: Here) -> None:
    service = Meddled(echoing(), "GET /v1/batches/.*", lambda _status, _body: (404, b"{}"))
    with running(service) as teacher:
        lost = here(*world.words(teacher, "--yes"))
        given_up = here(*world.words(teacher, "--give-up"))
        assert (lost.code, given_up.code) == (4, 0)
        assert "2 batches given up" in given_up.out
        counts, _ = world.generate(world.run)
    assert (counts.rewritten, counts.journal_answers) == (ROWS, 0)
    assert len(read_report(world.run / "journal.sqlite")["possibly_billed"]) == ROWS + NEEDS


@pytest.mark.parametrize(
    ("request_", "before"),
    [
        ("POST /v1/files", True),  # reserved, and not yet uploaded
        ("POST /v1/files", False),  # uploaded, and nobody heard
        ("POST /v1/batches", True),  # uploaded, not created
        ("POST /v1/batches", False),  # created, and nobody heard
        ("GET /v1/batches/.*", True),  # waited for
        ("GET /v1/files/.*/content", True),  # ended, not read
    ],
)
def test_killed_at_any_point_it_goes_on_and_each_row_is_paid_once(
    world: World, here: Here, request_: str, before: bool
) -> None:
    running_command: list[subprocess.Popen[bytes]] = []

    def kill(status: int, body: bytes) -> tuple[int, bytes]:
        while not running_command:
            pass
        os.kill(running_command[0].pid, KILL)
        running_command[0].wait()
        return status or 200, body

    with running(Meddled(echoing(), request_, kill, times=1, before=before)) as teacher:
        command = [sys.executable, "-c", "from commands.cli import main; main()", *world.words(teacher, "--yes")]
        running_command.append(subprocess.Popen(command, stderr=subprocess.DEVNULL))
        assert running_command[0].wait(timeout=300) == -signal.SIGKILL
        ended = here(*world.words(teacher, "--json"))
        counts = stats(teacher)

    assert ended.code == 0, ended.errors
    assert orjson.loads(ended.out)["answered"] == ROWS + NEEDS
    assert (counts["batches"], counts["billed"]) == (2, ROWS + NEEDS)
    assert outcomes(world.run) == {"answered": ROWS + NEEDS}
    assert [path.name for path in world.run.glob("*.jsonl")] == []
