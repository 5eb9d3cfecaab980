"""The model card, as CycloneDX has it: figures from the evaluation, data by digest and rows, limits in words."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from components.release.register.config import RegisterConfig
from components.release.register.model_kinds import Evaluation, ModelKind, mapping_at
from qinglan.lineage.bom import CYCLONEDX_HASHES
from qinglan.lineage.gate_verdict import LineageStatement
from qinglan.verdict import Verdict

Json = dict[str, Any]
YET = "Yet "
"""How the gate begins what it does not hold a model for, and nobody should overlook."""


def model_card(
    kind: ModelKind,
    evaluation: Evaluation,
    verdict: Verdict,
    told: Sequence[LineageStatement],
    config: RegisterConfig,
) -> Json:
    tenant = config.name.partition("/")[0]
    return {
        "modelParameters": {
            "approach": {"type": kind.approach}, "task": kind.task, "architectureFamily": "transformer",
            "datasets": list(datasets(kind, evaluation, told, tenant)),
            "inputs": [{"format": "text"}], "outputs": [{"format": "text"}],
        },
        "quantitativeAnalysis": {"performanceMetrics": list(metrics(kind, evaluation))},
        "considerations": {
            "users": list(kind.users),
            "useCases": [config.intended_use or kind.intended_use],
            "technicalLimitations": [*kind.limits, *config.limits, *known_regressions(verdict)],
            "ethicalConsiderations": [
                {"name": name, "mitigationStrategy": what} for name, what in kind.risks.items()
            ],
        },
    }  # fmt: skip


def known_regressions(verdict: Verdict) -> list[str]:
    """What surely got worse, though the gate promotes."""
    return [reason for reason in verdict.reasons if reason.startswith(YET)]


def datasets(
    kind: ModelKind, evaluation: Evaluation, told: Sequence[LineageStatement], tenant: str
) -> Iterator[Json]:
    """Each by its digest, with its rows where a statement counted them."""
    facts = {one.statement.stage: one.statement.facts for one in told}
    algorithms = {made.digest: made.algorithm for one in told for made in one.statement.made}
    for name, place in kind.datasets.items():
        digest = mapping_at(evaluation, "digests", *place[:-1]).get(place[-1])
        if digest is None:
            continue
        stage, counts = kind.facts[name]
        rows = [facts.get(stage, {}).get(count) for count in counts]
        known = [count for count in rows if isinstance(count, int)]
        algorithm = algorithms.get(str(digest), "")
        about = {algorithm if algorithm in CYCLONEDX_HASHES else "digest": str(digest)}
        if len(known) == len(rows):
            about["rows"] = str(sum(known))
        yield {
            "type": "dataset", "name": name, "contents": {"properties": properties(about)},
            "governance": {"owners": [{"organization": {"name": tenant}}]},
        }  # fmt: skip


def properties(values: Mapping[str, str]) -> list[Json]:
    return [{"name": f"qinglan:{name}", "value": value} for name, value in values.items()]


def metrics(kind: ModelKind, evaluation: Evaluation) -> Iterator[Json]:
    """The model's own figures, those of each label, and its differences to what it was compared with."""
    system = kind.system(evaluation)
    own = mapping_at(evaluation, "systems", system)
    yield from _measured(own, "value")
    for label, found in mapping_at(own, "classes").items():
        yield from _measured(found, "value", slice=label)
    pair = mapping_at(evaluation, "paired", f"{system}_vs_{kind.against}")
    first = {str(pair["metric"]): pair} if "metric" in pair else {}
    for one in _measured({**first, **pair}, "difference"):
        yield {**one, "type": f"{one['type']} minus {kind.against}'s"}


def _measured(found: Any, what: str, **about: str) -> Iterator[Json]:
    for name, one in found.items() if isinstance(found, Mapping) else ():
        value = one.get(what) if isinstance(one, Mapping) else None
        if isinstance(value, int | float):
            yield {"type": name, "value": _figure(value), **about, **_interval(one)}


def _interval(one: Mapping[str, Any]) -> Json:
    low, high = one.get("low"), one.get("high")
    if not isinstance(low, int | float) or not isinstance(high, int | float):
        return {}
    return {"confidenceInterval": {"lowerBound": _figure(low), "upperBound": _figure(high)}}


def _figure(value: float) -> str:
    return f"{value:.6g}"
