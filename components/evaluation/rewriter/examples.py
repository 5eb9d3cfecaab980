"""Queries to look at: where the candidate wins against the teacher, where it loses, where both still fail."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

KINDS = ("won", "lost", "still failing")
Row = dict[str, Any]


def pick_examples(predictions: Path, candidate: str, wanted: int) -> dict[str, list[Row]]:
    """So many rows of each kind, in an order that has nothing to do with their content; one a conversation."""
    best: dict[str, list[tuple[bytes, Row]]] = {kind: [] for kind in KINDS}
    for row in _rows(predictions):
        if (kind := kind_of(row, candidate)) is not None:
            ranked = [*best[kind], (hashlib.sha256(str(row["id"]).encode()).digest(), row)]
            best[kind] = _one_a_conversation(sorted(ranked, key=lambda pair: pair[0]))[:wanted]
    return {kind: [row for _, row in rows] for kind, rows in best.items()}


def kind_of(row: Row, candidate: str) -> str | None:
    """By who finds the gold passage first; None without gold, or where both do."""
    if not row["gold"]:
        return None
    own, theirs = (row["systems"][name]["rank"] == 1 for name in (candidate, "teacher"))
    if own and theirs:
        return None
    return "won" if own else "lost" if theirs else "still failing"


def _one_a_conversation(rows: list[tuple[bytes, Row]]) -> list[tuple[bytes, Row]]:
    seen: dict[tuple[str, str], tuple[bytes, Row]] = {}
    for one in rows:
        seen.setdefault((one[1]["tenant_id"], one[1]["conversation_id"]), one)
    return list(seen.values())


def _rows(predictions: Path) -> Iterator[Row]:
    with predictions.open("rb") as file:
        for line in file:
            yield orjson.loads(line)
