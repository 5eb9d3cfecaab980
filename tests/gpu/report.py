"""Results of the checks, as a table for people and as one line of JSON."""

import json
import platform
from collections.abc import Sequence
from typing import Any, NamedTuple


class Measured(NamedTuple):
    """A figure and its name."""

    name: str
    value: float


class Result(NamedTuple):
    """A check's outcome."""

    check: str
    passed: bool | None
    """None where it was skipped."""

    figures: Sequence[Measured] = ()
    note: str = ""
    """The reason of a skip or a failure."""

    @property
    def word(self) -> str:
        return {None: "skipped", True: "passed", False: "FAILED"}[self.passed]


def machine() -> dict[str, Any]:
    """The machine's name: its GPU, its driver's CUDA and its packages."""
    import torch
    import transformers

    gpus = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    return {
        "gpu": gpus[0] if gpus else "none", "gpus": len(gpus), "cuda": torch.version.cuda, "torch": torch.__version__,
        "transformers": transformers.__version__, "python": platform.python_version(),
    }  # fmt: skip


def table(results: Sequence[Result]) -> str:
    """A line for each check, and one for each of its figures."""
    lines = []
    for result in results:
        lines.append(f"{result.check:<10} {result.word}{': ' if result.note else ''}{result.note}")
        lines += [f"  {figure.name:<44} {figure.value:>12,.4g}" for figure in result.figures]
    return "\n".join(lines)


def to_json(results: Sequence[Result], seconds: float) -> str:
    checks = {
        result.check: {"result": result.word, "note": result.note}
        | {figure.name: round(figure.value, 6) for figure in result.figures}
        for result in results
    }
    return json.dumps({"machine": machine(), "checks": checks, "seconds": round(seconds, 1)}, ensure_ascii=False)
