"""Figures to choose `as_asked` by, from rows of dev: never from the test."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from components.evaluation.rewriter.leak import read_extra_infos
from qinglan.rag.as_asked import searched_as_asked
from qinglan.rows.rows import Retrieval

THRESHOLDS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)


class DevRow(NamedTuple):
    """A row of dev with gold: what its own question and the teacher's rewrite find."""

    own_score: float | None
    as_asked: bool
    teacher: bool
    """The gold passage comes first for the question as it was asked, and for the teacher's rewrite."""


def read_dev(prompts: Path) -> list[DevRow]:
    """The rows with gold of PPO's dev prompts; none where there are no such prompts."""
    path = prompts / "dev.parquet"
    return list(_rows(path)) if path.is_file() else []


def _rows(path: Path) -> Iterator[DevRow]:
    for extra in read_extra_infos(path):
        retrievals = extra.get("plain_retrieval"), extra.get("teacher_retrieval")
        if extra.get("gold") and all(retrievals):
            plain, teacher = map(Retrieval.model_validate, retrievals)
            yield DevRow(plain.own_score, plain.gold_rank == 1, teacher.gold_rank == 1)


def by_threshold(rows: Sequence[DevRow]) -> list[dict[str, Any]]:
    """Count the questions of dev that each threshold would search as asked, and what is right first for them."""
    return (
        [_at(threshold, rows) for threshold in THRESHOLDS] if any(row.own_score is not None for row in rows) else []
    )


def _at(threshold: float, rows: Sequence[DevRow]) -> dict[str, Any]:
    taken = [row for row in rows if searched_as_asked(row.own_score, threshold)]
    count = len(taken)
    return {
        "threshold": threshold, "rows": len(rows), "taken": count,
        "as_asked": sum(row.as_asked for row in taken) / count if count else None,
        "teacher": sum(row.teacher for row in taken) / count if count else None,
    }  # fmt: skip
