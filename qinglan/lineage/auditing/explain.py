"""Explain why a release passed, and list what changed between two releases.

print("\\n".join(explain_release(target, policy)))
print("\\n".join(format_changes(diff_releases(before, target, policy))))
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from qinglan.lineage.auditing.audit_targets import AuditTarget
from qinglan.lineage.signing.statement import ArtifactRef
from qinglan.lineage.signing.statement_index import Step
from qinglan.lineage.signing.trust import TrustPolicy
from qinglan.lineage.trace.evidence import mapping_or_empty
from qinglan.lineage.trace.paid_answers import JOURNAL, paid_lists, read_costs
from qinglan.lineage.trace.release_folder import read_figures
from qinglan.lineage.trace.walk import Graph, stage_steps, steps_by_time, walk

ENVIRONMENT_INPUTS = ("code", "environment", "image")
NOTHING = "-"
COST_DIGITS = 6
"""Decimal places of a cost, as statements have it."""


class ReleaseFacts(NamedTuple):
    """A release's statements, its evaluation, and the lists of paid answers that were found."""

    graph: Graph
    evaluation: Mapping[str, Any]
    paid: Mapping[str, Path]
    """By digest."""

    @property
    def steps(self) -> dict[str, Step]:
        """The step of each stage that led to the released model; else the stage's last step."""
        return stage_steps(self.graph)


class Change(NamedTuple):
    kind: str
    """data, code, parameter, environment, metric or key."""

    name: str
    old: str
    new: str


def load_release_facts(target: AuditTarget, policy: TrustPolicy) -> ReleaseFacts:
    graph = walk(target.starts, target.evidence, policy, target.tenant, until=target.until)
    return ReleaseFacts(graph, read_figures(target.release), paid_lists(target.evidence))


def explain_release(target: AuditTarget, policy: TrustPolicy) -> list[str]:
    """Lines that say what led to the verdict: data, paid answers, judges, gate, signatures."""
    facts = load_release_facts(target, policy)
    return [f"{target.name or target.label} {target.digest[:12]}".strip(), *_explanation_lines(facts)]


def _explanation_lines(facts: ReleaseFacts) -> Iterator[str]:
    sections = {
        "Data": data_lines(facts.graph),
        "Paid answers": paid_lines(facts.graph, facts.paid),
        "Judges": judge_lines(facts.evaluation),
        "Gate": gate_lines(_last_gate(facts.steps)),
        "Signed": signed_lines(facts.graph),
    }
    for title, lines in sections.items():
        yield f"{title}:"
        yield from (f"  {line}" for line in lines or ["nothing is known"])


def _last_gate(steps: Mapping[str, Step]) -> Step | None:
    """The newest gate: the chain of a smaller model may hold its teacher's gate as well."""
    gates = [step for stage, step in steps.items() if stage.partition("_")[0] == "gate"]
    return max(gates, key=lambda step: step.done, default=None)


def data_lines(graph: Graph) -> list[str]:
    """The external inputs, and the datasets made of them with their rows."""
    lines = []
    for thing in graph.things.values():
        rows = thing.about.get("rows")
        if thing.external and not thing.step and thing.name not in (*ENVIRONMENT_INPUTS, JOURNAL, "prices"):
            lines.append(f"external input: {thing.name} {thing.digest[:12]} ({thing.state})")
        elif rows is not None:
            stage = graph.steps[thing.step].statement.stage if thing.step else "nobody"
            lines.append(f"{stage} made {thing.name} {thing.digest[:12]}, {_number(rows)} rows ({thing.state})")
    return lines


def paid_lines(graph: Graph, lists: Mapping[str, Path]) -> list[str]:
    """Number and cost of the paid answers, for each step and in all.

    The steps of a run share one journal, and a fold's list repeats the lists before it, so a call counts only in the
    step that named it first. If a list is missing, the numbers that its step signed are taken.
    """
    lines, answers, cost, counted = [], 0, 0.0, set[str]()
    for step, part in _journals_used(graph):
        calls = read_costs(lists[part.digest]) if part.digest in lists else None
        if calls is None:
            count, paid = _as(int, part.about.get("answers")), _as(float, part.about.get("cost"))
        else:
            new = calls.keys() - counted
            counted |= new
            count, paid = len(new), round(math.fsum(calls[call] for call in new), COST_DIGITS)
        answers, cost = answers + count, round(cost + paid, COST_DIGITS)
        lines.append(f"{step.statement.stage}: {count:,} answers, cost {paid:g} ({part.digest[:12]})")
    return [*lines, f"in all {answers:,} answers, cost {cost:g}"] if lines else []


def _journals_used(graph: Graph) -> Iterator[tuple[Step, ArtifactRef]]:
    for step in steps_by_time(graph):
        yield from ((step, part) for part in step.statement.used if part.name == JOURNAL)


def judge_lines(evaluation: Mapping[str, Any]) -> list[str]:
    agreement = mapping_or_empty(evaluation.get("agreement"))
    return [f"{role}: {agreement[role]}" for role in ("judge", "examiner") if role in agreement]


def gate_lines(gate: Step | None) -> list[str]:
    """The gate's verdict, its reasons, and its rule with the settings."""
    if gate is None:
        return []
    rule = ", ".join(f"{name} {value}" for name, value in flatten_config(gate.statement.config).items())
    facts = gate.statement.facts
    reasons = facts.get("reasons") if isinstance(facts.get("reasons"), list) else []
    lines = [f"verdict: {facts.get('verdict', 'none')}", *map(str, reasons or ())]
    return [*lines, f"rule: {rule}"] if rule else lines


def signed_lines(graph: Graph) -> list[str]:
    return [_signed_line(step) for step in steps_by_time(graph)]


def _signed_line(step: Step) -> str:
    statement = step.statement
    return (
        f"{statement.ended[:19]} {statement.stage}: key {step.signer[:12] or 'none'}"
        f"{f', run {statement.run}' if statement.run else ''}"
        f"{'' if step.is_trusted else f', {step.state}: {step.why}'}"
    )


def diff_releases(before: AuditTarget, after: AuditTarget, policy: TrustPolicy) -> list[Change]:
    """Differences in data, code, parameters, environment, metrics and keys."""
    old_facts, new_facts = load_release_facts(before, policy), load_release_facts(after, policy)
    changes = []
    for kind, values in COMPARED.items():
        old, new = values(old_facts), values(new_facts)
        changes += [
            Change(kind, name, old.get(name, NOTHING), new.get(name, NOTHING))
            for name in dict.fromkeys((*old, *new))
            if old.get(name) != new.get(name)
        ]
    return changes


def data_digests(facts: ReleaseFacts) -> dict[str, str]:
    """Digest and rows of everything made or used, by stage and name."""
    return {
        f"{stage} {how} {part.name}": _described(part)
        for stage, step in facts.steps.items()
        for how, parts in (("used", step.statement.used), ("made", step.statement.made))
        for part in parts
        if part.name not in ENVIRONMENT_INPUTS and "/" not in part.name
    }


def code_revisions(facts: ReleaseFacts) -> dict[str, str]:
    return _environment_digests(facts, ("code",))


def environment_versions(facts: ReleaseFacts) -> dict[str, str]:
    versions = {
        f"{stage} {name}": str(version)
        for stage, step in facts.steps.items()
        for name, version in step.statement.versions.items()
    }
    return _environment_digests(facts, ("environment", "image")) | versions


def config_values(facts: ReleaseFacts) -> dict[str, str]:
    return {
        f"{stage}.{name}": str(value)
        for stage, step in facts.steps.items()
        for name, value in flatten_config(step.statement.config).items()
    }


def metric_values(facts: ReleaseFacts) -> dict[str, str]:
    """The candidate's figures, and its differences to other systems, with their intervals."""
    evaluation = facts.evaluation
    systems, paired = mapping_or_empty(evaluation.get("systems")), mapping_or_empty(evaluation.get("paired"))
    candidate = str(evaluation.get("candidate", ""))
    metrics = mapping_or_empty(systems.get(candidate) or next(iter(systems.values()), None))
    figures = {name: _figure(value, "value") for name, value in metrics.items()}
    figures |= {pair: _figure(value, "difference") for pair, value in paired.items() if pair.startswith(candidate)}
    return {name: figure for name, figure in figures.items() if figure}


def signing_keys(facts: ReleaseFacts) -> dict[str, str]:
    return {stage: step.signer[:12] or "unsigned" for stage, step in facts.steps.items()}


COMPARED = {
    "data": data_digests,
    "code": code_revisions,
    "parameter": config_values,
    "environment": environment_versions,
    "metric": metric_values,
    "key": signing_keys,
}


TITLES = {
    "data": "Data",
    "code": "Code",
    "parameter": "Parameters",
    "environment": "Environment",
    "metric": "Metrics",
    "key": "Keys",
}


def format_changes(changes: Sequence[Change]) -> list[str]:
    """A line for each change, under its kind."""
    lines = []
    for kind in dict.fromkeys(change.kind for change in changes):
        lines.append(f"{TITLES[kind]}:")
        lines += [f"  {change.name}: {change.old} -> {change.new}" for change in changes if change.kind == kind]
    return lines or ["Nothing changed."]


def flatten_config(config: Any, path: str = "") -> dict[str, Any]:
    """Settings by their paths: train.epochs."""
    if not isinstance(config, Mapping):
        return {path: config}
    inside = [flatten_config(value, f"{path}.{name}" if path else str(name)) for name, value in config.items()]
    return {name: value for settings in inside for name, value in settings.items()}


def _environment_digests(facts: ReleaseFacts, names: Sequence[str]) -> dict[str, str]:
    return {
        f"{stage} {part.name}": part.digest[:12] + (" with changes" if part.about.get("dirty") else "")
        for stage, step in facts.steps.items()
        for part in step.statement.used
        if part.name in names
    }


def _described(part: ArtifactRef) -> str:
    rows = part.about.get("rows")
    return part.digest[:12] + (f", {_number(rows)} rows" if rows is not None else "")


def _figure(value: Any, field: str) -> str:
    value = mapping_or_empty(value)
    if not isinstance(value.get(field), int | float):
        return ""
    interval = [value.get("low"), value.get("high")]
    low, high = (f"{end:.4g}" if isinstance(end, int | float) else "" for end in interval)
    return f"{value[field]:.4g}" + (f" [{low}, {high}]" if low and high else "")


def _number(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _as(kind: Any, value: Any) -> Any:
    """The number as int or float; 0 where a statement has no number there."""
    return kind(value) if isinstance(value, int | float) else kind()
