"""The curves of training, read from the logs that the stages keep."""

import math
from collections.abc import Mapping
from pathlib import Path

import orjson

from qinglan.pages.curves import curve_svg

FIRST = (
    *("loss", "eval_loss", "avg_reward", "gold_dev", "win_rate", "student_top1", "policy_loss", "value_loss", "kl"),
    *("entropy", "clip_fraction", "length", "copy_rate", "judge_hit_rate", "rag_hit_rate"),
)
"""Names that come first; other names of a log follow in their own order."""

MOST = 12
Series = dict[str, list[tuple[float, float]]]


def curves(logs: Mapping[str, Path]) -> dict[str, list[str]]:
    """A few small figures for each stage that left a log."""
    out = {}
    for stage, folder in logs.items():
        series = read_series(folder / "metrics.jsonl")
        names = sorted(series, key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST))
        if names:
            out[stage] = [curve_svg(name, {"": series[name]}) for name in names[:MOST]]
    return out


def read_series(path: Path) -> Series:
    """Each name's (step, value) points; empty if the log is missing. A torn last line is skipped."""
    out: Series = {}
    if not path.is_file():
        return out
    for line in path.read_bytes().splitlines():
        try:
            row = orjson.loads(line)
            step = float(row["step"])
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
            continue
        for name, value in row.items():
            if name != "step" and isinstance(value, int | float) and math.isfinite(value):
                out.setdefault(name, []).append((step, float(value)))
    return {name: points for name, points in out.items() if len(points) > 1}
