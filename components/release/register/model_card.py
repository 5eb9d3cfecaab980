"""Model card in CycloneDX's format: figures of the evaluation, data sets by digest and rows, limits as text."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from components.release.register.config import RegisterConfig
from components.release.register.model_kinds import MODEL_KINDS, ModelKind
from qinglan.evaluation.gates.kinds import Evaluation, Kind, mapping_at
from qinglan.evaluation.gates.rewriter_gate import CROSS_FITTED
from qinglan.evaluation.gates.verdict import Verdict
from qinglan.lineage.release.bom import CYCLONEDX_HASHES
from qinglan.lineage.signing.signed_statement import SignedStatement

Json = dict[str, Any]
STAND_IN_LIMIT = "A stand-in taught this model, for a demonstration: it is of no use in production."
YET = "Yet "
"""Beginning of a verdict's reasons about losses that do not stop a promotion, but that people must see."""


def model_card(
    kind: Kind,
    system: str,
    evaluation: Evaluation,
    verdict: Verdict,
    statements: Sequence[SignedStatement],
    config: RegisterConfig,
) -> Json:
    """Return the card of the model that the evaluation calls `system`."""
    model, tenant = MODEL_KINDS[kind.name], config.name.partition("/")[0]
    return {
        "modelParameters": {
            "approach": {"type": model.approach}, "task": model.task, "architectureFamily": "transformer",
            "datasets": list(datasets(model, evaluation, statements, tenant)),
            "inputs": [{"format": "text"}], "outputs": [{"format": "text"}],
        },
        "quantitativeAnalysis": {"performanceMetrics": list(metrics(evaluation, system, kind.against))},
        "considerations": {
            "users": list(model.users),
            "useCases": [config.intended_use or model.intended_use],
            "technicalLimitations": [
                *([STAND_IN_LIMIT] if config.stand_in_teacher else []),
                *model.limits, *config.limits, *known_regressions(verdict),
            ],
            "ethicalConsiderations": [
                {"name": name, "mitigationStrategy": what} for name, what in model.risks.items()
            ],
        },
    }  # fmt: skip


def known_regressions(verdict: Verdict) -> list[str]:
    """Return the gate's reasons that name a significant loss, or say that there was no locked test."""
    return [reason for reason in verdict.reasons if reason.startswith((YET, CROSS_FITTED))]


def datasets(
    model: ModelKind, evaluation: Evaluation, statements: Sequence[SignedStatement], tenant: str
) -> Iterator[Json]:
    """Yield the data sets with their digests, and with their number of rows if a statement has counted them."""
    # The oldest statement of a stage counts, since the statements of a cross-fitted run's folds are newer.
    facts = {entry.statement.stage: entry.statement.facts for entry in reversed(statements)}
    algorithms = {output.digest: output.algorithm for entry in statements for output in entry.statement.made}
    for name, dataset in model.datasets.items():
        digest = mapping_at(evaluation, "digests", *dataset.digest_path[:-1]).get(dataset.digest_path[-1])
        if digest is None:
            continue
        rows = [facts.get(dataset.stage, {}).get(count) for count in dataset.counts]
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


def metrics(evaluation: Evaluation, system: str, against: str) -> Iterator[Json]:
    """Yield the system's figures, the figures of each label, and the differences to the system `against`."""
    figures = mapping_at(evaluation, "systems", system)
    yield from _measured(figures, "value")
    for label, of_label in mapping_at(figures, "classes").items():
        yield from _measured(of_label, "value", slice=label)
    pair = mapping_at(evaluation, "paired", f"{system}_vs_{against}")
    first = {str(pair["metric"]): pair} if "metric" in pair else {}
    for metric in _measured({**first, **pair}, "difference"):
        yield {**metric, "type": f"{metric['type']} minus {against}'s"}


def _measured(figures: Any, part: str, **about: str) -> Iterator[Json]:
    for name, estimate in figures.items() if isinstance(figures, Mapping) else ():
        value = estimate.get(part) if isinstance(estimate, Mapping) else None
        if isinstance(value, int | float):
            yield {"type": name, "value": _figure(value), **about, **_interval(estimate)}


def _interval(estimate: Mapping[str, Any]) -> Json:
    low, high = estimate.get("low"), estimate.get("high")
    if not isinstance(low, int | float) or not isinstance(high, int | float):
        return {}
    return {"confidenceInterval": {"lowerBound": _figure(low), "upperBound": _figure(high)}}


def _figure(value: float) -> str:
    return f"{value:.6g}"
