"""Each teacher writes, then every rewrite is put through the RAG and the examiner, all in the same way."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import orjson

from components.evaluation.rewriter.config import EvaluateConfig
from components.evaluation.rewriter.score_systems import RowScorer, ScoredRow, ScoredRows, draw_rows
from qinglan.concurrency import map_in_order
from qinglan.errors import RowError
from qinglan.files import atomic_write
from qinglan.llm.client import GatewayClient
from qinglan.prompts import need_messages, teacher_messages
from qinglan.rag.client import RagClient
from qinglan.rows import Question, QuestionWithNeed
from qinglan.terminal.progress import progress

STEP = "compare"
PLAIN = "plain"
ROWS_UNDER_WAY = 32


class TeacherRewrite(NamedTuple):
    """What one teacher made of one question."""

    rewrite: str
    """Empty where there is none."""

    reason: str
    """Why there is none."""

    detail: str
    call: str
    """The journal's key of the paid call."""


class RowsWithNeeds(NamedTuple):
    """Rows with their needs, and how many have none."""

    rows: list[QuestionWithNeed]
    without: Counter[str]
    """Rows that are left out for every teacher, by reason: nothing could be scored against."""


def collect_rewrites(
    name: str, rows: Sequence[Question], system_prompt: str, gateway_url: str
) -> list[TeacherRewrite]:
    """A teacher's rewrites, in the order of the rows, asked for as the generate stage asks."""
    return asyncio.run(_collect_rewrites(name, rows, system_prompt, gateway_url))


async def _collect_rewrites(
    name: str, rows: Sequence[Question], system_prompt: str, gateway_url: str
) -> list[TeacherRewrite]:
    out: list[TeacherRewrite] = []
    async with GatewayClient(gateway_url, STEP) as gateway:

        async def write(row: Question) -> TeacherRewrite:
            try:
                answer = await gateway.ask("teacher", teacher_messages(row, system_prompt), row=row.id)
                return TeacherRewrite(answer.line(), "", "", answer.call)
            except RowError as error:
                return TeacherRewrite("", error.reason, str(error), "")

        failed = 0
        with progress(f"teacher {name}", len(rows)) as tick:
            async for written in map_in_order(rows, write, ROWS_UNDER_WAY):
                out.append(written)
                failed += bool(written.reason)
                tick(f"{failed} without a rewrite" if failed else "")
    return out


def collect_needs(rows: Sequence[Question], snapshots: Mapping[str, str], gateway_url: str) -> RowsWithNeeds:
    """Each row's need, as the validate stage has it: the sheet's word, else the judge's; one for all teachers."""
    return asyncio.run(_collect_needs(rows, snapshots, gateway_url))


async def _collect_needs(rows: Sequence[Question], snapshots: Mapping[str, str], gateway_url: str) -> RowsWithNeeds:
    known = RowsWithNeeds([], Counter())
    async with GatewayClient(gateway_url, STEP) as gateway:

        async def need(row: Question) -> QuestionWithNeed | RowError:
            try:
                said = row.need or (await gateway.ask("judge", need_messages(row), row=row.id)).line()
            except RowError as error:
                return error
            return QuestionWithNeed(**{**row.model_dump(), "need": said}, snapshot=snapshots.get(row.tenant_id, ""))

        with progress("needs", len(rows)) as tick:
            async for one in map_in_order(rows, need, ROWS_UNDER_WAY):
                if isinstance(one, RowError):
                    known.without[one.reason] += 1
                else:
                    known.rows.append(one)
                tick()
    return known


def score_rewrites(
    rows: Sequence[QuestionWithNeed], written: Mapping[str, Sequence[TeacherRewrite]], predictions: Path,
    config: EvaluateConfig, gateway_url: str,
) -> ScoredRows:  # fmt: skip
    """Put every teacher's query through the RAG, and a sample of them before the examiner.

    Where a teacher gave no rewrite, the question itself is its query: so would the user be served.
    """
    return asyncio.run(_score_rewrites(rows, written, predictions, config, gateway_url))


async def _score_rewrites(
    rows: Sequence[QuestionWithNeed], written: Mapping[str, Sequence[TeacherRewrite]], predictions: Path,
    config: EvaluateConfig, gateway_url: str,
) -> ScoredRows:  # fmt: skip
    examined = set(draw_rows(rows, config.examined_rows, config.seed))
    out = ScoredRows([], [], Counter(), [], {})
    async with GatewayClient(gateway_url, STEP) as gateway, RagClient.of_gateway(gateway_url) as rag:
        asker = RowScorer(gateway, rag, config)

        async def ask(at: int) -> ScoredRow:
            mine = {name: one[at].rewrite or rows[at].question for name, one in written.items()}
            return await asker.row(rows[at], {PLAIN: rows[at].question, **mine}, (), at in examined, False)

        with (
            atomic_write(predictions) as partial,
            partial.open("wb") as file,
            progress("retrieve", len(rows)) as tick,
        ):
            async for answered in map_in_order(range(len(rows)), ask, ROWS_UNDER_WAY):
                file.write(answered.prediction)
                out.values.append(answered.values)
                out.unexamined.update(answered.unexamined)
                if answered.snapshot and answered.snapshot not in out.snapshots:
                    out.snapshots.append(answered.snapshot)
                tick()
        return out._replace(report=await gateway.report())


def write_rewrites(path: Path, rows: Sequence[Question], written: Sequence[TeacherRewrite]) -> None:
    """A line for each row: what the teacher gave, or why nothing."""
    with atomic_write(path) as partial, partial.open("wb") as file:
        for row, one in zip(rows, written, strict=True):
            file.write(orjson.dumps({"id": row.id, "question": row.question, **one._asdict()}) + b"\n")
