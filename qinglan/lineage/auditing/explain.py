"""Explain why a release passed, and list what changed between two releases.

print("\\n".join(explain_release(target, audit_target(target, policy).graph)))
print("\\n".join(format_changes(diff_releases((before, before_graph), (target, graph)))))
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from qinglan.lineage.auditing.audit_targets import AuditTarget
from qinglan.lineage.signing.statement import flatten_config
from qinglan.lineage.signing.statement_index import Step
from qinglan.lineage.trace.evidence import mapping_or_empty
from qinglan.lineage.trace.paid_answers import JOURNAL, paid_lists, read_costs
from qinglan.lineage.trace.release_folder import read_figures
from qinglan.lineage.trace.walk import Graph, stage_steps, steps_by_time

ENVIRONMENT_INPUTS = ("code", "environment", "image")
TITLES = {
    "data": "Data",
    "code": "Code",
    "parameter": "Parameters",
    "environment": "Environment",
    "metric": "Metrics",
    "key": "Keys",
}
COST_DIGITS = 6
"""Number of decimal places of a cost in statements."""


class Change(NamedTuple):
    kind: str
    """Kind of the change, which is a key of TITLES."""

    name: str
    old: str
    new: str


def explain_release(target: AuditTarget, graph: Graph) -> list[str]:
    """Return lines that say what led to the verdict: data, paid answers, judges, gate, signatures."""
    # The chain of a smaller model may also hold its teacher's gate. The newest gate decided about this model.
    gates = [step for stage, step in stage_steps(graph).items() if stage.partition("_")[0] == "gate"]
    agreement = mapping_or_empty(read_figures(target.release).get("agreement"))
    sections = {
        "Data": _data_lines(graph),
        "Paid answers": _paid_lines(graph, paid_lists(target.evidence)),
        "Judges": [f"{role}: {agreement[role]}" for role in ("judge", "examiner") if role in agreement],
        "Gate": _gate_lines(max(gates, key=lambda step: step.done)) if gates else [],
        "Signed": [_signed_line(step) for step in steps_by_time(graph)],
    }
    lines = [f"{target.name or target.label} {target.digest[:12]}".strip()]
    for title, section in sections.items():
        lines += [f"{title}:", *(f"  {line}" for line in section or ["nothing is known"])]
    return lines


def _data_lines(graph: Graph) -> list[str]:
    """List the external inputs, and the datasets that were made from them, with their numbers of rows."""
    lines = []
    for thing in graph.things.values():
        rows = thing.about.get("rows")
        if thing.external and not thing.step and thing.name not in (*ENVIRONMENT_INPUTS, JOURNAL, "prices"):
            lines.append(f"external input: {thing.name} {thing.digest[:12]} ({thing.state})")
        elif rows is not None:
            stage = graph.steps[thing.step].statement.stage if thing.step else "unknown"
            lines.append(f"{stage} made {thing.name} {thing.digest[:12]}, {_number(rows)} rows ({thing.state})")
    return lines


def _paid_lines(graph: Graph, lists: Mapping[str, Path]) -> list[str]:
    """List number and cost of the paid answers, per step and in total. `lists` maps digests to lists of paid answers.

    The steps of a run share one journal, and a fold's list repeats earlier lists, so a call counts only for the first
    step that names it. If a list is missing, the numbers in its step's statement are used.
    """
    lines, answers, cost, counted = [], 0, 0.0, set[str]()
    used = ((step, part) for step in steps_by_time(graph) for part in step.statement.used if part.name == JOURNAL)
    for step, part in used:
        calls = read_costs(lists[part.digest]) if part.digest in lists else None
        if calls is None:
            signed = [part.about.get(name) for name in ("answers", "cost")]
            count, paid = (value if isinstance(value, int | float) else 0 for value in signed)
        else:
            new = calls.keys() - counted
            counted |= new
            count, paid = len(new), round(math.fsum(calls[call] for call in new), COST_DIGITS)
        answers, cost = answers + int(count), round(cost + paid, COST_DIGITS)
        lines.append(f"{step.statement.stage}: {int(count):,} answers, cost {paid:g} ({part.digest[:12]})")
    return [*lines, f"in all {answers:,} answers, cost {cost:g}"] if lines else []


def _gate_lines(gate: Step) -> list[str]:
    rule = ", ".join(f"{name} {value}" for name, value in flatten_config(gate.statement.config).items())
    facts = gate.statement.facts
    reasons = facts["reasons"] if isinstance(facts.get("reasons"), list) else []
    lines = [f"verdict: {facts.get('verdict', 'none')}", *map(str, reasons)]
    return [*lines, f"rule: {rule}"] if rule else lines


def _signed_line(step: Step) -> str:
    statement = step.statement
    return (
        f"{statement.ended[:19]} {statement.stage}: key {step.signer[:12] or 'none'}"
        f"{f', run {statement.run}' if statement.run else ''}"
        f"{'' if step.is_trusted else f', {step.state}: {step.why}'}"
    )


def diff_releases(before: tuple[AuditTarget, Graph], after: tuple[AuditTarget, Graph]) -> list[Change]:
    """List the differences between two releases in data, code, parameters, environment, metrics and keys."""
    old, new = (
        {(kind, name): value for kind, name, value in _compared_values(*release)} for release in (before, after)
    )
    changes = [
        Change(*key, old.get(key, "-"), new.get(key, "-")) for key in {**old, **new} if old.get(key) != new.get(key)
    ]
    return sorted(changes, key=lambda change: [*TITLES].index(change.kind))


def _compared_values(target: AuditTarget, graph: Graph) -> Iterator[tuple[str, str, str]]:
    """Yield kind, name and value of everything that `diff_releases` compares."""
    for stage, step in stage_steps(graph).items():
        statement = step.statement
        for how, parts in (("used", statement.used), ("made", statement.made)):
            for part in parts:
                if part.name in ENVIRONMENT_INPUTS and how == "used":
                    changed = " with changes" if part.about.get("dirty") else ""
                    kind = "code" if part.name == "code" else "environment"
                    yield kind, f"{stage} {part.name}", part.digest[:12] + changed
                elif part.name not in ENVIRONMENT_INPUTS and "/" not in part.name:
                    rows = f", {_number(part.about['rows'])} rows" if "rows" in part.about else ""
                    yield "data", f"{stage} {how} {part.name}", part.digest[:12] + rows
        for name, value in flatten_config(statement.config).items():
            yield "parameter", f"{stage}.{name}", str(value)
        for name, version in statement.versions.items():
            yield "environment", f"{stage} {name}", str(version)
        yield "key", stage, step.signer[:12] or "unsigned"
    for name, figure in _metric_values(read_figures(target.release)).items():
        yield "metric", name, figure


def _metric_values(evaluation: Mapping[str, Any]) -> dict[str, str]:
    """Return the metrics of the evaluation's candidate, and its differences to other systems, with intervals."""
    systems, paired = mapping_or_empty(evaluation.get("systems")), mapping_or_empty(evaluation.get("paired"))
    candidate = str(evaluation.get("candidate", ""))
    metrics = mapping_or_empty(systems.get(candidate) or next(iter(systems.values()), None))
    figures = {name: _figure(value, "value") for name, value in metrics.items()}
    figures |= {pair: _figure(value, "difference") for pair, value in paired.items() if pair.startswith(candidate)}
    return {name: figure for name, figure in figures.items() if figure}


def format_changes(changes: Sequence[Change]) -> list[str]:
    lines = []
    for kind in dict.fromkeys(change.kind for change in changes):
        lines.append(f"{TITLES[kind]}:")
        lines += [f"  {change.name}: {change.old} -> {change.new}" for change in changes if change.kind == kind]
    return lines or ["Nothing changed."]


def _figure(value: Any, field: str) -> str:
    value = mapping_or_empty(value)
    if not isinstance(value.get(field), int | float):
        return ""
    interval = [value.get("low"), value.get("high")]
    low, high = (f"{end:.4g}" if isinstance(end, int | float) else "" for end in interval)
    return f"{value[field]:.4g}" + (f" [{low}, {high}]" if low and high else "")


def _number(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)
