"""Turn validated rewrites into SFT chat rows, PPO prompts, and a locked test that training never sees.

SFT learns only the accepted rewrites. PPO and the test also use rows with rejected rewrites, because PPO can do
better than the teacher on them, and a test without them would overstate every model.

Judges' labels of a row without gold overrule the validate stage: a rewrite is accepted if its first passage is
labelled relevant, and rejected if it is labelled irrelevant. PPO leaves out a row for which judges found nothing
relevant.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import orjson

from components.data.convert.config import ConvertConfig
from components.data.convert.split_rows import SplitAssignment, SplitInput, assign_splits
from qinglan.errors import DataError, RowError
from qinglan.evaluation.question_kinds import is_complete
from qinglan.files.files import atomic_file, dump_line, read_jsonl
from qinglan.prompts import student_prompt
from qinglan.rows.labels import RELEVANT, RowLabels
from qinglan.rows.prompt_parquet import ParquetRows
from qinglan.rows.rows import ValidatedRewrite, quarantine_row
from qinglan.rows.training_rows import ppo_row, sft_row
from qinglan.terminal.progress import progress
from qinglan.text.near_duplicates import question_key

STEP = "convert"
COUNTED = {"near_duplicate": "near_duplicates", "balance": "left_out_for_balance", None: ""}
"""Field of ConvertCounts that counts the left-out rows, by reason."""

UNLABELLED = "nothing_relevant"
Labels = Mapping[tuple[str, str], RowLabels]
"""Judges' labels of the rows, by tenant and row id."""


class ConvertCounts(NamedTuple):
    rows: int
    near_duplicates: int
    left_out_for_balance: int
    nothing_relevant: int
    """Rows without gold for which judges found nothing relevant. They are in SFT if accepted, and never in PPO."""

    sft_train: int
    sft_dev: int
    ppo_train: int
    ppo_dev: int
    test: int


class Conversion(NamedTuple):
    counts: ConvertCounts
    student_prompts: dict[str, str]
    """Student's system prompt in the rows, by tenant."""


FIGURES = {
    "rows": "rewrites",
    "near_duplicates": "left out as near-duplicates, rows",
    "left_out_for_balance": "left out for balance of tenants, rows",
    "nothing_relevant": "nothing relevant, left out of PPO, rows",
    "sft_train": "SFT train, rows",
    "sft_dev": "SFT dev, rows",
    "ppo_train": "PPO train, rows",
    "ppo_dev": "PPO dev, rows",
    "test": "locked test, rows",
}
"""Names of the figures on KFP's page, by field."""


def convert(
    validated: Path,
    sft: Path,
    ppo: Path,
    test: Path,
    left_out: Path,
    config: ConvertConfig,
    labels: Path | None = None,
) -> Conversion:
    """Write sft/{train,dev}.jsonl, ppo/{train,dev}.parquet, the locked test, and the rows that are left out.

    The same input and seed give the same bytes.
    """
    labelled = read_labels(labels) if labels else {}
    inputs = read_split_inputs(validated, labelled)
    if config.folds and not config.fold:
        _refuse_poor_folds(validated, inputs, config)
    assigned = assign_splits(inputs, config)
    counts = Counter[str]()
    with ExitStack() as files, progress(STEP, len(assigned)) as tick:
        chats = {name: files.enter_context(atomic_file(sft / f"{name}.jsonl")) for name in ("train", "dev")}
        prompts = {name: files.enter_context(ParquetRows(ppo / f"{name}.parquet")) for name in ("train", "dev")}
        locked, unused = (files.enter_context(atomic_file(path)) for path in (test, left_out))
        # The rows are read twice, since only the fields of a SplitInput fit in memory.
        for (_, row), assignment in zip(read_jsonl(validated, ValidatedRewrite), assigned, strict=True):
            tick()
            split, row = assignment.split, with_labels(row, labelled)
            if split is None:
                reason = RowError(assignment.reason or "", assignment.detail)
                unused.write(dump_line(quarantine_row(row, STEP, reason)))
                counts[COUNTED[assignment.reason]] += 1
            elif split == "test":
                locked.write(dump_line(row.model_copy(update={"split": split})))
                counts["test"] += 1
            else:
                if why := nothing_to_find(row, labelled):
                    unused.write(dump_line(quarantine_row(row, STEP, RowError(UNLABELLED, why))))
                    counts[UNLABELLED] += 1
                else:
                    prompts[split].add(ppo_row(row, split, config.system_prompt))
                    counts[f"ppo_{split}"] += 1
                if row.accepted:
                    chat = sft_row(row, split, row.rewritten.top1_score, config.system_prompt)
                    chats[split].write(orjson.dumps(chat) + b"\n")
                    counts[f"sft_{split}"] += 1
        _refuse_nothing_to_learn(validated, inputs, assigned)
    tenants = sorted({row.conversation[0] for row in inputs})
    return Conversion(
        ConvertCounts(len(assigned), *(counts[name] for name in ConvertCounts._fields[1:])),
        {tenant: student_prompt(tenant, config.system_prompt) for tenant in tenants},
    )


def read_labels(path: Path) -> Labels:
    """Read the labels of rows without gold; empty if the label stage had nothing to label."""
    return {(row.tenant_id, row.id): row for _, row in read_jsonl(path, RowLabels)}


def with_labels(row: ValidatedRewrite, labelled: Labels) -> ValidatedRewrite:
    """Return the row with the judges' labels. If the first passage of its rewrite is labelled, that label decides if
    the rewrite is accepted. A row with gold is returned unchanged."""
    if row.gold or (labels := labelled.get((row.tenant_id, row.id))) is None:
        return row
    row = row.model_copy(update={"labels": labels.labels})
    first = row.rewritten.hits[0].id if row.rewritten.count else ""
    grade = next((label.grade for label in row.labels if label.id == first), None)
    if grade is None:
        return row
    accepted = grade >= RELEVANT
    return row.model_copy(
        update={"accepted": accepted, "reason": "" if accepted else f"first passage labelled {grade}"}
    )


def nothing_to_find(row: ValidatedRewrite, labelled: Labels) -> str:
    """Explain why no rewrite of this row can be rewarded for a relevant passage; returns "" if a rewrite can."""
    labels = None if row.gold else labelled.get((row.tenant_id, row.id))
    if labels is None or labels.outcome == "relevant":
        return ""
    return f"without gold, and by its labels: {labels.outcome} among {len(labels.judged)} judged passages"


def read_split_inputs(validated: Path, labelled: Labels) -> list[SplitInput]:
    """Read the fields that decide the splits. They are small enough to hold in memory for all rows."""
    inputs = []
    for number, row in read_jsonl(validated, ValidatedRewrite):
        conversation = (row.tenant_id, row.conversation_id)
        question = question_key(row.question, row.history_summary)
        complete = bool(row.need) and is_complete(row.question, row.need)
        accepted = with_labels(row, labelled).accepted
        inputs.append(SplitInput(number, row.id, conversation, row.split, question, complete, accepted))
    if not inputs:
        raise DataError(f"{validated}: no rows. Look at the quarantine files of the earlier stages for why.")
    return inputs


def _accepted(inputs: Sequence[SplitInput], assigned: Sequence[SplitAssignment]) -> Counter[str]:
    """Count the accepted rows by split. Accepted rows that were left out are counted by the reason."""
    pairs = zip(inputs, assigned, strict=True)
    return Counter(assignment.reason or assignment.split or "" for row, assignment in pairs if row.accepted)


def _refuse_nothing_to_learn(
    validated: Path, inputs: Sequence[SplitInput], assigned: Sequence[SplitAssignment]
) -> None:
    """Raise a DataError if SFT has no row to learn from. The message says if near-duplicates are the cause."""
    fit = _accepted(inputs, assigned)
    if fit["train"]:
        return
    if repeated := fit["near_duplicate"]:
        rejected = sum(assignment.split == "train" for assignment in assigned)
        rest = f" {rejected:,} rows of train are not accepted: look at `reason` in that file." if rejected else ""
        raise DataError(
            f"{validated}: of {len(assigned)} rows none is left to learn from: {repeated:,} accepted rows nearly "
            f"repeat a row of dev or test.{rest} Bring more different questions: one that many rows repeat counts "
            "once."
        )
    raise DataError(
        f"{validated}: of {len(assigned)} rows none in the train split is accepted, so there is nothing to "
        "learn from. Look at `reason` in that file, and at `quality_threshold` in the profile."
    )


def _refuse_poor_folds(validated: Path, inputs: Sequence[SplitInput], config: ConvertConfig) -> None:
    """Raise a DataError if one of the folds could not be trained.

    The fold's own convert step would find this only after the trainings of the released model and of earlier folds.
    """
    for fold in range(1, config.folds + 1):
        fit = _accepted(inputs, assign_splits(inputs, config.model_copy(update={"fold": fold})))
        if poor := [split for split in ("train", "dev") if not fit[split]]:
            repeated = (
                f" {fit['near_duplicate']:,} accepted rows nearly repeat others." if fit["near_duplicate"] else ""
            )
            raise DataError(
                f"{validated}: in fold {fold} of {config.folds} no row of {poor[0]} is accepted, so its SFT could "
                f"not be trained.{repeated} Nothing is trained yet. Take another number of folds (`cross_fit`) or "
                "another `convert.seed`, mark conversations with accepted rows for dev in the sheet, or bring more "
                "questions."
            )
