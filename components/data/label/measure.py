"""Measure the judges on rows with gold passages, which they judge without knowing gold."""

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from components.data.label.config import LabelConfig
from components.data.label.judges import Judges, RowProgress
from qinglan.concurrency import gather_or_cancel
from qinglan.rows.labels import RELEVANT, JudgedPassage
from qinglan.rows.rows import ValidatedRewrite
from qinglan.rows.splits import Conversation, draw_key

DRAWS = 2_000
"""Number of bootstrap draws for an interval."""


class Check(NamedTuple):
    """Result of comparing a judge's grade with a better source: gold, a second judge, or a person."""

    conversation: Conversation
    right: bool


def share_right(checks: Sequence[Check], seed: int) -> dict[str, Any]:
    """Return the share of right grades, with a 95 % interval over conversations. An unmeasurable value is None."""
    import numpy as np

    from qinglan.evaluation.statistics import bootstrap_means, group_numbers

    if not checks:
        return {"value": None, "low": None, "high": None, "n": 0}
    column = np.array([[float(check.right)] for check in checks])
    groups = group_numbers([check.conversation for check in checks])
    [estimate] = bootstrap_means(column, groups, DRAWS, seed)
    return {name: None if math.isnan(value) else value for name, value in estimate._asdict().items()}


def in_words(measured: Mapping[str, Any]) -> str:
    """Format a share as text, such as `0.91 [0.84, 0.97] of 57`."""
    if measured["value"] is None:
        return "not measured"
    low, high = measured["low"], measured["high"]
    interval = f" [{low:.2f}, {high:.2f}]" if low is not None and high is not None else ""
    return f"{measured['value']:.2f}{interval} of {measured['n']}"


def drawn(rows: Iterable[ValidatedRewrite], count: int, config: LabelConfig) -> list[ValidatedRewrite]:
    return heapq.nsmallest(count, rows, key=lambda row: draw_key(config.seed, row.tenant_id, row.id))


async def measure_gold(judges: Judges, rows: Iterable[ValidatedRewrite], config: LabelConfig) -> dict[str, Any]:
    """Compare the judges' grades with gold, on rows with gold passages that the sheet does not mark as test."""
    some = drawn((row for row in rows if row.split != "test"), config.gold_rows, config)
    answers: list[Check] = []
    beside: list[Check] = []
    results = await gather_or_cancel(*(judge_row(judges, row) for row in some))
    for row, passages in zip(some, results, strict=True):
        conversation = (row.tenant_id, row.conversation_id)
        for passage in passages:
            relevant = passage.grade >= RELEVANT
            if passage.id in row.gold:
                answers.append(Check(conversation, relevant))
            else:
                beside.append(Check(conversation, not relevant))
    return {
        "gold_called_relevant": share_right(answers, config.seed),
        "others_called_not": share_right(beside, config.seed),
    }


async def judge_row(judges: Judges, row: ValidatedRewrite) -> list[JudgedPassage]:
    """Return the judgements of a row's first passages, and of the gold passages that its need finds."""
    pool = await judges.pool(row)
    gold = [candidate for candidate in pool.listed if candidate.id in row.gold]
    work = RowProgress(row, 2 * (len(pool.first) + len(gold)))
    for candidate in dict.fromkeys((*pool.first, *gold)):
        if candidate.id not in work.judged:
            await judges.judge(work, candidate)
    return list(work.judged.values())
