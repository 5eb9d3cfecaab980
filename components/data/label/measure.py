"""Measure the judges on rows with gold passages, which they judge without knowing gold."""

import heapq
from collections.abc import Iterable
from typing import Any

from components.data.label.agreement import Measured, by_phrasing
from components.data.label.config import LabelConfig
from components.data.label.judges import Judges, RowProgress
from qinglan.concurrency import gather_or_cancel
from qinglan.rows.labels import RELEVANT, JudgedPassage
from qinglan.rows.rows import ValidatedRewrite
from qinglan.rows.splits import draw_key


def drawn(rows: Iterable[ValidatedRewrite], count: int, config: LabelConfig) -> list[ValidatedRewrite]:
    """Draw `count` rows by the seed."""
    return heapq.nsmallest(count, rows, key=lambda row: draw_key(config.seed, row.tenant_id, row.id))


async def measure_gold(judges: Judges, rows: Iterable[ValidatedRewrite], config: LabelConfig) -> dict[str, Any]:
    """Compare the judges' grades with gold, on rows with gold passages that the sheet does not mark as test."""
    some = drawn((row for row in rows if row.split != "test"), config.gold_rows, config)
    answers: list[Measured] = []
    beside: list[Measured] = []
    results = await gather_or_cancel(*(measure_row(judges, row, config) for row in some))
    for row, passages in zip(some, results, strict=True):
        for passage in passages:
            relevant = passage.grade >= RELEVANT
            if passage.id in row.gold:
                answers.append(Measured(row.question, relevant))
            else:
                beside.append(Measured(row.question, not relevant))
    return {
        "gold_called_relevant": by_phrasing(answers, config.seed),
        "others_called_not": by_phrasing(beside, config.seed),
    }


async def measure_row(judges: Judges, row: ValidatedRewrite, config: LabelConfig) -> list[JudgedPassage]:
    """Return the judgements of a row's first passages, and of the gold passages that its need finds."""
    pool = await judges.pool(row)
    gold = [candidate for candidate in pool.listed if candidate.id in row.gold]
    work = RowProgress(row, 2 * (len(pool.first) + len(gold)))
    for candidate in dict.fromkeys((*pool.first, *gold)):
        if candidate.id not in work.judged:
            await judges.judge(work, candidate)
    return list(work.judged.values())
