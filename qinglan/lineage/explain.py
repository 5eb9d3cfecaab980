"""Two questions about releases: why did this one pass, and what changed since the other?

print("\\n".join(why(one, policy)))
print("\\n".join(said_of_diff(diff(before, one, policy))))
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from qinglan.lineage.audit_targets import AuditTarget
from qinglan.lineage.evidence_source import mapping_or_empty
from qinglan.lineage.graph import Graph, Step, steps_by_time
from qinglan.lineage.release_folder import EVALUATION
from qinglan.lineage.statement import ArtifactRef
from qinglan.lineage.trust import TrustPolicy
from qinglan.lineage.walk import walk

ENVIRONMENT_INPUTS = ("code", "environment", "image")
NOTHING = "-"


class ReleaseFacts(NamedTuple):
    """What a release's statements and its evaluation say."""

    graph: Graph
    evaluation: Mapping[str, Any]

    @property
    def steps(self) -> dict[str, Step]:
        """The last of each stage."""
        return {one.statement.stage: one for one in steps_by_time(self.graph)}


class Change(NamedTuple):
    kind: str
    """data, code, parameter, environment, metric or key."""

    name: str
    old: str
    new: str


def load_release_facts(one: AuditTarget, policy: TrustPolicy) -> ReleaseFacts:
    graph = walk(one.starts, one.evidence, policy, one.tenant, until=one.until)
    return ReleaseFacts(graph, read_evaluation(one.release))


def explain_release(one: AuditTarget, policy: TrustPolicy) -> list[str]:
    """The chain of the verdict in words."""
    told = load_release_facts(one, policy)
    return [f"{one.name or one.label} {one.digest[:12]}".strip(), *_explanation_lines(told)]


def _explanation_lines(told: ReleaseFacts) -> Iterator[str]:
    for title, lines in (
        ("Data", data_lines(told.graph)), ("Paid answers", paid_lines(told.graph)),
        ("Judges", judge_lines(told.evaluation)), ("Gate", gate_lines(told.steps.get("gate"))),
        ("Signed", signed_lines(told.graph)),
    ):  # fmt: skip
        yield f"{title}:"
        yield from (f"  {line}" for line in lines or ["nothing is known"])


def data_lines(graph: Graph) -> list[str]:
    """What was given, and what came of it with its rows."""
    found = []
    for thing in graph.things.values():
        rows = thing.about.get("rows")
        if thing.given and not thing.step and thing.name not in (*ENVIRONMENT_INPUTS, "journal", "prices"):
            found.append(f"given: {thing.name} {thing.digest[:12]} ({thing.state})")
        elif rows is not None:
            stage = graph.steps[thing.step].statement.stage if thing.step else "nobody"
            found.append(f"{stage} made {thing.name} {thing.digest[:12]}, {_number(rows)} rows ({thing.state})")
    return found


def paid_lines(graph: Graph) -> list[str]:
    """How many answers each stage took and paid for, and all together; nothing is counted twice."""
    found, answers, cost = [], 0, 0.0
    for step in steps_by_time(graph):
        for part in step.statement.used:
            if part.name == "journal":
                count, paid = _as(int, part.about.get("answers")), _as(float, part.about.get("cost"))
                answers, cost = answers + count, cost + paid
                found.append(f"{step.statement.stage}: {count:,} answers, cost {paid:g} ({part.digest[:12]})")
    return [*found, f"in all {answers:,} answers, cost {cost:g}"] if found else []


def judge_lines(evaluation: Mapping[str, Any]) -> list[str]:
    agreed = mapping_or_empty(evaluation.get("agreement"))
    return [f"{role}: {agreed[role]}" for role in ("judge", "examiner") if role in agreed]


def gate_lines(gate: Step | None) -> list[str]:
    """The rule with its settings, and what it said."""
    if gate is None:
        return []
    rule = ", ".join(f"{name} {value}" for name, value in flatten_config(gate.statement.config).items())
    facts = gate.statement.facts
    reasons = facts.get("reasons")
    said = [str(one) for one in reasons] if isinstance(reasons, list) else []
    return [f"verdict: {facts.get('verdict', 'none')}", *said, *([f"rule: {rule}"] if rule else [])]


def signed_lines(graph: Graph) -> list[str]:
    return [
        f"{one.statement.ended[:19]} {one.statement.stage}: key {one.signer[:12] or 'none'}"
        + ("" if one.counts else f", {one.state}: {one.why}")
        for one in steps_by_time(graph)
    ]


def diff_releases(before: AuditTarget, after: AuditTarget, policy: TrustPolicy) -> list[Change]:
    """What changed between two releases."""
    return compare_facts(load_release_facts(before, policy), load_release_facts(after, policy))


def compare_facts(before: ReleaseFacts, after: ReleaseFacts) -> list[Change]:
    """Of data, code, parameters, environment, metrics and keys: what is not the same, or in one of them alone."""
    found = []
    for kind, of in (
        ("data", data_digests),
        ("code", code_revisions),
        ("parameter", config_values),
        ("environment", environment_versions),
        ("metric", metric_values),
        ("key", signing_keys),
    ):
        old, new = of(before), of(after)
        found += [
            Change(kind, name, old.get(name, NOTHING), new.get(name, NOTHING))
            for name in dict.fromkeys((*old, *new))
            if old.get(name) != new.get(name)
        ]
    return found


def data_digests(told: ReleaseFacts) -> dict[str, str]:
    """Everything made or used by stage and name: its digest, and its rows."""
    return {
        f"{stage} {how} {part.name}": _described(part)
        for stage, step in told.steps.items()
        for how, parts in (("used", step.statement.used), ("made", step.statement.made))
        for part in parts
        if part.name not in ENVIRONMENT_INPUTS and "/" not in part.name
    }


def code_revisions(told: ReleaseFacts) -> dict[str, str]:
    return _environment_digests(told, ("code",))


def environment_versions(told: ReleaseFacts) -> dict[str, str]:
    versions = {
        f"{stage} {name}": str(version)
        for stage, step in told.steps.items()
        for name, version in step.statement.versions.items()
    }
    return _environment_digests(told, ("environment", "image")) | versions


def config_values(told: ReleaseFacts) -> dict[str, str]:
    return {
        f"{stage}.{name}": str(value)
        for stage, step in told.steps.items()
        for name, value in flatten_config(step.statement.config).items()
    }


def metric_values(told: ReleaseFacts) -> dict[str, str]:
    """The candidate's own figures, and its differences to others, with their intervals."""
    systems, paired = (
        mapping_or_empty(told.evaluation.get("systems")),
        mapping_or_empty(told.evaluation.get("paired")),
    )
    candidate = str(told.evaluation.get("candidate", ""))
    own = mapping_or_empty(systems.get(candidate) or next(iter(systems.values()), None))
    found = {name: _figure(one, "value") for name, one in own.items()}
    found |= {pair: _figure(one, "difference") for pair, one in paired.items() if pair.startswith(candidate)}
    return {name: said for name, said in found.items() if said}


def signing_keys(told: ReleaseFacts) -> dict[str, str]:
    return {stage: step.signer[:12] or "unsigned" for stage, step in told.steps.items()}


def format_changes(found: Sequence[Change]) -> list[str]:
    """A line for each change, under its kind."""
    lines = []
    for kind in dict.fromkeys(one.kind for one in found):
        lines.append(f"{kind}:")
        lines += [f"  {one.name}: {one.old} -> {one.new}" for one in found if one.kind == kind]
    return lines or ["Nothing changed."]


def flatten_config(config: Any, path: str = "") -> dict[str, Any]:
    """Settings by their paths: train.epochs."""
    if not isinstance(config, Mapping):
        return {path: config}
    inside = [flatten_config(value, f"{path}.{name}" if path else str(name)) for name, value in config.items()]
    return {name: value for one in inside for name, value in one.items()}


def read_evaluation(release: Path | None) -> dict[str, Any]:
    """The release's figures; nothing where there are none to be read."""
    try:
        return mapping_or_empty(orjson.loads((release / EVALUATION).read_bytes())) if release else {}
    except (OSError, orjson.JSONDecodeError):
        return {}


def _environment_digests(told: ReleaseFacts, names: Sequence[str]) -> dict[str, str]:
    return {
        f"{stage} {part.name}": part.digest[:12] + (" with changes" if part.about.get("dirty") else "")
        for stage, step in told.steps.items()
        for part in step.statement.used
        if part.name in names
    }


def _described(part: ArtifactRef) -> str:
    rows = part.about.get("rows")
    return part.digest[:12] + (f", {_number(rows)} rows" if rows is not None else "")


def _figure(one: Any, what: str) -> str:
    one = mapping_or_empty(one)
    if not isinstance(one.get(what), int | float):
        return ""
    interval = [one.get("low"), one.get("high")]
    low, high = (f"{end:.4g}" if isinstance(end, int | float) else "" for end in interval)
    return f"{one[what]:.4g}" + (f" [{low}, {high}]" if low and high else "")


def _number(found: Any) -> str:
    return f"{found:,}" if isinstance(found, int) else str(found)


def _as(kind: Any, found: Any) -> Any:
    return kind(found) if isinstance(found, int | float) else kind()
