"""Answers to look at: where model and baseline differ, where both are wrong."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from qinglan.style.rows import StyleRow

KINDS = {(True, False): "only the model is right", (False, True): "only the baseline is right",
         (False, False): "both are wrong"}  # fmt: skip


def pick_examples(
    rows: Sequence[StyleRow], predictions: Sequence[Mapping[str, Any]], wanted: int
) -> dict[str, list[Any]]:
    """So many rows of each kind with their texts, in an order that has nothing to do with their content."""
    out: dict[str, list[Any]] = {kind: [] for kind in KINDS.values()}
    both = zip(rows, predictions, strict=True)
    for row, said in sorted(both, key=lambda pair: hashlib.sha256(pair[0].id.encode()).digest()):
        right = tuple(said[name]["predicted"] == row.label for name in ("model", "baseline"))
        kind = KINDS.get((right[0], right[1]))
        if kind and len(out[kind]) < wanted:
            out[kind].append({**said, "input": row.input})
    return out
