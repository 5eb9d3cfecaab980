"""Collect every teacher's rewrites, then score all of them in the same way with the RAG service and the examiner."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import orjson

from components.evaluation.rewriter.config import EvaluateConfig
from components.evaluation.rewriter.score_systems import ScoredRows, score_all
from qinglan.concurrency import map_in_order
from qinglan.errors import RowError
from qinglan.files.files import atomic_write
from qinglan.llm.client import GatewayClient
from qinglan.prompts import SystemPrompt, need_messages, teacher_messages
from qinglan.rows.rows import Question, QuestionWithNeed
from qinglan.terminal.progress import progress

STEP = "compare"
PLAIN = "plain"
ROWS_UNDER_WAY = 32


class TeacherRewrite(NamedTuple):
    """A teacher's rewrite of a question, or the reason why there is none."""

    rewrite: str
    """The rewritten question; empty if the teacher gave none."""

    reason: str
    """Kind of failure, as a quarantine names it; empty if there is a rewrite."""

    detail: str
    call: str
    """The journal's key of the paid call."""


class RowsWithNeeds(NamedTuple):
    """Rows with their information need, and counts of the rows without one."""

    rows: list[QuestionWithNeed]
    without: Counter[str]
    """Rows left out for every teacher because there is no need to score against, by reason."""


def collect_rewrites(
    name: str, rows: Sequence[Question], system_prompt: SystemPrompt, gateway_url: str
) -> list[TeacherRewrite]:
    """Ask a teacher to rewrite the rows, with the prompts of the generate stage; the order of the rows is kept."""
    return asyncio.run(_collect_rewrites(name, rows, system_prompt, gateway_url))


async def _collect_rewrites(
    name: str, rows: Sequence[Question], system_prompt: SystemPrompt, gateway_url: str
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


def collect_needs(
    rows: Sequence[Question], snapshots: Mapping[str, str], prompt: str, gateway_url: str
) -> RowsWithNeeds:
    """Collect each row's need as the validate stage does, from the sheet or else the judge, once for all teachers."""
    return asyncio.run(_collect_needs(rows, snapshots, prompt, gateway_url))


async def _collect_needs(
    rows: Sequence[Question], snapshots: Mapping[str, str], prompt: str, gateway_url: str
) -> RowsWithNeeds:
    collected = RowsWithNeeds([], Counter())
    async with GatewayClient(gateway_url, STEP) as gateway:

        async def need(row: Question) -> QuestionWithNeed | RowError:
            try:
                text = row.need or (await gateway.ask("judge", need_messages(row, prompt), row=row.id)).line()
            except RowError as error:
                return error
            return QuestionWithNeed(**{**row.model_dump(), "need": text}, snapshot=snapshots.get(row.tenant_id, ""))

        with progress("needs", len(rows)) as tick:
            async for row_with_need in map_in_order(rows, need, ROWS_UNDER_WAY):
                if isinstance(row_with_need, RowError):
                    collected.without[row_with_need.reason] += 1
                else:
                    collected.rows.append(row_with_need)
                tick()
    return collected


def score_rewrites(
    rows: Sequence[QuestionWithNeed], rewrites: Mapping[str, Sequence[TeacherRewrite]], predictions: Path,
    config: EvaluateConfig, gateway_url: str,
) -> ScoredRows:  # fmt: skip
    """Score every teacher's queries by retrieval, and a sample of them by the examiner.

    If a teacher gave no rewrite, the plain question is its query, as it would be in production.
    """
    questions = [row.question for row in rows]
    queries = {
        name: [answer.rewrite or question for answer, question in zip(answers, questions, strict=True)]
        for name, answers in rewrites.items()
    }
    texts = {PLAIN: questions, **queries}
    return score_all(rows, texts, {}, predictions, config, gateway_url, STEP, judged_rows=0)


def write_rewrites(path: Path, rows: Sequence[Question], rewrites: Sequence[TeacherRewrite]) -> None:
    """Write a line for each row: the teacher's rewrite, or why there is none."""
    with atomic_write(path) as partial, partial.open("wb") as file:
        for row, rewrite in zip(rows, rewrites, strict=True):
            file.write(orjson.dumps({"id": row.id, "question": row.question, **rewrite._asdict()}) + b"\n")
