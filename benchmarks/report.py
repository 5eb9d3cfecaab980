"""Print the result of a benchmark: one line of JSON, last on stdout."""

import json
from typing import Any


def report(name: str, ratio: float, target: float, ok: bool, **figures: Any) -> None:
    """`ratio` is ours against what a user could run instead; `target` is what we aim at, reported, not asserted."""
    line = {"name": name, "ratio": round(ratio, 3), "target": target, "ok": ok, **figures}
    print(json.dumps(line, ensure_ascii=False), flush=True)
