"""Figures for choosing the setting `as_asked`, computed on dev rows and never on the test."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from components.evaluation.rewriter.leak import read_extra_infos
from qinglan.rag.as_asked import searched_as_asked
from qinglan.rows.rows import Retrieval

THRESHOLDS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)


class DevRow(NamedTuple):
    """A dev row with gold passages."""

    own_score: float | None
    as_asked: bool
    """True if a gold passage comes first for the question as it was asked."""

    teacher: bool
    """True if a gold passage comes first for the teacher's rewrite."""


def read_dev(prompts: Path) -> list[DevRow]:
    """Read the rows with gold from PPO's dev prompts; empty if there are no such prompts."""
    path, rows = prompts / "dev.parquet", []
    for extra in read_extra_infos(path) if path.is_file() else ():
        retrievals = extra.get("plain_retrieval"), extra.get("teacher_retrieval")
        if extra.get("gold") and all(retrievals):
            plain, teacher = map(Retrieval.model_validate, retrievals)
            rows.append(DevRow(plain.own_score, plain.gold_rank == 1, teacher.gold_rank == 1))
    return rows


def by_threshold(rows: Sequence[DevRow]) -> list[dict[str, Any]]:
    """A line for each threshold: the number of dev questions that it would search as asked, and how often a gold
    passage is first for them, as asked and by the teacher's rewrite. Empty if the service gave no scores."""
    table = list[dict[str, Any]]()
    for threshold in THRESHOLDS if any(row.own_score is not None for row in rows) else ():
        taken = [row for row in rows if searched_as_asked(row.own_score, threshold)]
        as_asked, teacher = (
            sum(getattr(row, name) for row in taken) / len(taken) if taken else None
            for name in ("as_asked", "teacher")
        )
        line = {"threshold": threshold, "rows": len(rows), "taken": len(taken)}
        table.append(line | {"as_asked": as_asked, "teacher": teacher})
    return table
