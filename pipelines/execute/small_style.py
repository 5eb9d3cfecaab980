"""The smaller style model of a run on this machine; it is trained only if it can become a release.

first part    prepare ... register                             the larger model, to its release
second part   distil evaluate_small gate_small register_small  if the gate promotes and a test is locked away
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pipelines.execute.execution import Part, gate_verdict
from pipelines.execute.rundir import RunDir
from pipelines.lines.style import STYLE

FIRST_STAGE = "distil"
MORE_ROWS = "For one, label rows until a test can be locked away (prepare.cross_fit_below)."


def style_parts(run: RunDir, stages: tuple[str, ...], only: bool) -> Iterator[Part]:
    """Yield the parts; the second only if the gate promotes the larger model, and a test is locked away."""
    if only or FIRST_STAGE not in stages:
        yield Part(run, stages, only)
        return
    split = stages.index(FIRST_STAGE)
    larger, smaller = stages[:split], stages[split:]
    yield Part(run, larger, False)
    steps = {stage: run.step_record(stage) for stage in larger}
    if gate_verdict(steps, larger).get("word") == "promote" and has_locked_test(steps):
        yield Part(run, smaller, True)
    else:  # files/ may still link an earlier run's outputs
        run.unlink(name for stage in smaller for name in STYLE.stages[stage].outputs)


def has_locked_test(steps: Mapping[str, Any]) -> bool:
    """Tell from prepare's record if a test is locked away; cross-fitted rows leave none."""
    return bool(((steps.get("prepare") or {}).get("facts") or {}).get("test"))


def without_small_model(record: Mapping[str, Any]) -> str:
    """Explain why a run made no smaller model; empty if it made one, or has no verdict yet."""
    steps: Mapping[str, Any] = record["steps"]
    ran: Sequence[str] = record["ran"]
    word = record["verdict"].get("word")
    if not word or (steps.get(FIRST_STAGE) or {}).get("status") == "done":
        return ""
    if has_locked_test(steps):
        return "Held, so no small model is made. `--only distil` makes one all the same." if word == "hold" else ""
    if word == "hold":
        return f"Held, so no small model is made; cross-fitted rows would leave it no test. {MORE_ROWS}"
    if FIRST_STAGE in ran:
        return f"Released; no small model is made, because cross-fitted rows leave it no test. {MORE_ROWS}"
    return ""
