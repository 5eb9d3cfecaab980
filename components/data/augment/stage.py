"""Let the teacher write further rows: rewrites with the relevant passage in view, and questions from passages.

Only rows of train are used, and passages that are relevant to no row of dev or test. A rewrite is kept if it finds
the passage at a better rank than the teacher's first rewrite. A question is kept if its query finds the passage
first. dev and test do not change.
"""

import asyncio
import heapq
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypeVar

import orjson

from components.data.augment.cases import STEP, Cases, Inputs, read_cases
from components.data.augment.config import AugmentConfig
from components.data.augment.report import KINDS, Tally, report_lines
from components.data.augment.teacher import HindsightRow, Teacher
from qinglan.concurrency import map_in_order
from qinglan.errors import RowError
from qinglan.files.digests import digest
from qinglan.files.files import atomic_file, atomic_folder, dump_line, write_atomically
from qinglan.llm.client import GatewayClient
from qinglan.rag.client import RagClient
from qinglan.rows.prompt_parquet import ParquetRows, read_prompts
from qinglan.rows.rows import QuarantinedRow, ValidatedRewrite, quarantine_row
from qinglan.rows.splits import draw_key
from qinglan.rows.training_rows import WITHOUT_FURTHER, ppo_row, sft_row
from qinglan.terminal import say
from qinglan.terminal.progress import progress
from qinglan.text.near_duplicates import question_key

ROWS_UNDER_WAY = 64
TRIAL = 30
"""Number of first answers of each kind. If too few of them are usable, the rest is not paid for."""

Case = TypeVar("Case")
Row = TypeVar("Row")


class AugmentCounts(NamedTuple):
    hindsight_asked: int
    hindsight_kept: int
    not_better: int
    """Rewrites in hindsight that find the passage at no better rank than the teacher's first rewrite."""

    pseudo_asked: int
    pseudo_kept: int
    not_found: int
    """Questions from passages whose query does not find the passage first."""

    like_dev_or_test: int
    copied: int
    """Answers of both kinds that hold a sentence of the passage."""

    unusable: int
    """Answers of both kinds that were dropped for other reasons; the report has each reason."""

    sft_train: int
    """SFT's training rows, including the further ones."""

    replaced: int
    """SFT rows whose answer is now a rewrite in hindsight, instead of the teacher's first rewrite."""

    anchors: int
    """Questions from passages among PPO's training prompts."""


FIGURES = {
    "hindsight_asked": "hindsight: rewrites paid for",
    "hindsight_kept": "hindsight: rewrites kept",
    "not_better": "hindsight: dropped, no better",
    "pseudo_asked": "passages: questions paid for",
    "pseudo_kept": "passages: questions kept",
    "not_found": "passages: dropped, passage not found",
    "like_dev_or_test": "passages: dropped, like one of dev or test",
    "copied": "both: dropped, copies of the passage",
    "unusable": "both: dropped for other reasons",
    "anchors": "passages: questions in PPO, rows",
}
"""Names of the figures on KFP's page, by field."""


class Outputs(NamedTuple):
    """Paths that the stage writes."""

    augmented_chats: Path
    augmented_prompts: Path
    augment_left_out: Path
    augment_report: Path


@dataclass
class _Answers:
    """Usable answers, and counts of all answers."""

    left_out: BinaryIO
    hindsight: list[HindsightRow] = field(default_factory=list)
    pseudo: list[ValidatedRewrite] = field(default_factory=list)
    tallies: dict[str, Tally] = field(default_factory=lambda: {kind: Tally() for kind in KINDS})

    def drop(self, kind: str, row: QuarantinedRow) -> None:
        self.tallies[kind].dropped[row.reason] += 1
        self.left_out.write(dump_line(row))


def augment(inputs: Inputs, out: Outputs, config: AugmentConfig, gateway_url: str) -> AugmentCounts:
    return asyncio.run(_augment(inputs, out, config, gateway_url))


async def _augment(inputs: Inputs, out: Outputs, config: AugmentConfig, gateway_url: str) -> AugmentCounts:
    cases = read_cases(inputs, config)
    async with GatewayClient(gateway_url, STEP) as gateway, RagClient.of_gateway(gateway_url) as rag:
        with atomic_file(out.augment_left_out) as left_out:
            answers = _Answers(left_out)
            await _ask(cases, Teacher(gateway, rag, cases, config), answers, config)
        sft_train, replaced = _write_chats(inputs, out.augmented_chats, cases, answers)
        anchors = _write_prompts(inputs.prompts, out.augmented_prompts, cases, answers, config)
        if cases.calls:
            await gateway.exported(digest(out.augmented_chats))
    report = {kind: tally.as_dict() for kind, tally in answers.tallies.items()} | {"left_out": dict(cases.left_out)}
    write_atomically(out.augment_report, orjson.dumps(report, option=orjson.OPT_INDENT_2))
    say(*(f"[augment] {line}" for line in report_lines(report)))
    hindsight, pseudo = answers.tallies["hindsight"], answers.tallies["pseudo"]
    dropped = hindsight.dropped + pseudo.dropped
    named = {name: dropped[name] for name in ("not_better", "not_found", "like_dev_or_test", "copied")}
    return AugmentCounts(
        hindsight_asked=hindsight.answers, hindsight_kept=hindsight.useful, pseudo_asked=pseudo.answers,
        pseudo_kept=pseudo.useful, unusable=dropped.total() - sum(named.values()), sft_train=sft_train,
        replaced=replaced, anchors=anchors, **named,
    )  # fmt: skip


async def _ask(cases: Cases, teacher: Teacher, answers: _Answers, config: AugmentConfig) -> None:
    known = set[str]()
    with progress(STEP, cases.calls) as tick:
        async for row in _in_trial(cases.hindsight, teacher.hindsight, answers.tallies["hindsight"], config):
            tick()
            if isinstance(row, QuarantinedRow):
                answers.drop("hindsight", row)
            else:
                answers.hindsight.append(row)
                answers.tallies["hindsight"].useful += 1
        async for question in _in_trial(cases.pseudo, teacher.pseudo, answers.tallies["pseudo"], config):
            tick()
            if isinstance(question, QuarantinedRow):
                answers.drop("pseudo", question)
                continue
            key = question_key(question.question, question.history_summary)
            if key in known:
                answers.drop("pseudo", quarantine_row(question, STEP, RowError("repeated", "written before")))
                continue
            known.add(key)
            answers.pseudo.append(question)
            answers.tallies["pseudo"].useful += 1


async def _in_trial(
    cases: Sequence[Case], ask: Callable[[Case], Awaitable[Row]], tally: Tally, config: AugmentConfig
) -> AsyncIterator[Row]:
    """Yield the answers in order. After the first TRIAL answers it stops if too few of them could be used."""
    for group in (cases[:TRIAL], cases[TRIAL:]):
        # The caller counts `useful` before it takes the next answer, so after the first group the count is complete.
        if tally.useful < config.least_kept * tally.answers:
            tally.not_asked = len(cases) - tally.answers
            return
        async for row in map_in_order(group, ask, ROWS_UNDER_WAY):
            tally.answers += 1
            yield row


def _write_chats(inputs: Inputs, out: Path, cases: Cases, answers: _Answers) -> tuple[int, int]:
    """Write SFT's training rows, including the further rows. Returns the number of rows, and how many of convert's
    rows were replaced.

    The subfolder WITHOUT_FURTHER holds convert's rows, with which SFT trains a second model for comparison.
    """
    chats = inputs.chats
    better = {(entry.row.tenant_id, entry.row.id) for entry in answers.hindsight}
    unchanged = replaced = 0
    with (
        atomic_folder(out) as partial,
        (partial / "train.jsonl").open("wb") as train,
        (chats / "train.jsonl").open("rb") as lines,
    ):
        for line in lines:
            about = orjson.loads(line)["metadata"]
            if (about["tenant_id"], about["id"]) in better:
                replaced += 1
            else:
                unchanged += 1
                train.write(line)
        for entry in answers.hindsight:
            system = cases.systems[entry.row.tenant_id]
            row = sft_row(entry.row, "train", entry.top1_score, system, kind="hindsight")
            train.write(orjson.dumps(row) + b"\n")
        for question in answers.pseudo:
            system = cases.systems[question.tenant_id]
            row = sft_row(question, "train", question.rewritten.top1_score, system, kind="pseudo")
            train.write(orjson.dumps(row) + b"\n")
        shutil.copyfile(chats / "dev.jsonl", partial / "dev.jsonl")
        if answers.hindsight or answers.pseudo:
            shutil.copytree(chats, partial / WITHOUT_FURTHER)
            shutil.copyfile(inputs.prompts / "dev.parquet", partial / WITHOUT_FURTHER / "dev.parquet")
    return unchanged + len(answers.hindsight) + len(answers.pseudo), replaced


def _write_prompts(prompts: Path, out: Path, cases: Cases, answers: _Answers, config: AugmentConfig) -> int:
    """Write PPO's rows together with some of the questions from passages; returns the number of these questions."""
    anchors = 0
    with atomic_folder(out) as partial:
        shutil.copyfile(prompts / "dev.parquet", partial / "dev.parquet")
        with ParquetRows(partial / "train.parquet") as file:
            rows = 0
            for row in read_prompts(prompts / "train.parquet"):
                file.add(row)
                rows += 1
            for question in anchor_rows(answers.pseudo, rows, config):
                file.add(ppo_row(question, "train", cases.systems[question.tenant_id], kind="pseudo"))
                anchors += 1
    return anchors


def anchor_rows(questions: Sequence[ValidatedRewrite], rows: int, config: AugmentConfig) -> list[ValidatedRewrite]:
    """Draw the questions that are added to PPO's training prompts, by the seed."""
    # x questions beside n rows are the share x / (n + x), so x = share / (1 - share) * n.
    most = int(config.anchor_share / (1 - config.anchor_share) * rows)
    return heapq.nsmallest(most, questions, key=lambda row: draw_key(config.seed, row.tenant_id, row.id))
