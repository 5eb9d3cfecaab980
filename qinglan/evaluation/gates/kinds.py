"""Two kinds of evaluation with their gates: of a rewriter, and of a style model. A kind is recognised by the systems
that an evaluation compares.

kind = kind_of(evaluation, "evaluation.json")
kind.verdict(evaluation, where)     # decided from the figures, with the gate's settings in the evaluation
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

from qinglan.config import Config
from qinglan.errors import DataError
from qinglan.evaluation.gates import rewriter_gate, style_gate
from qinglan.evaluation.gates.gate_limits import Limits, tightened
from qinglan.evaluation.gates.verdict import Verdict, held_for

Evaluation = Mapping[str, Any]

UNCOUNTED = (
    "Not counted: how many models this locked test has judged, which the trust policy requires (evaluate.counted). "
    "Evaluate again with a store of releases (register.store, QINGLAN_STORE)."
)


class Kind(NamedTuple):
    """One kind of evaluation, which belongs to one model line."""

    name: Literal["rewriter", "style"]
    against: str
    """Name of the system with which the evaluated model is compared."""

    gate: type[Config]
    """Class of the gate's settings."""

    decide: Callable[..., Verdict]

    def verdict(self, evaluation: Evaluation, where: str) -> Verdict:
        """Decide from the evaluation's figures, with the gate's settings in the evaluation."""
        return self.decide(evaluation, self._settings(evaluation, where))

    def strict_verdict(self, evaluation: Evaluation, where: str, limits: Limits) -> Verdict:
        """Decide from the evaluation's figures, with the gate's settings in the evaluation, tightened to an
        organisation's limits."""
        return self.decide_within(evaluation, self._settings(evaluation, where), limits)

    def decide_within(self, evaluation: Evaluation, settings: Config, limits: Limits) -> Verdict:
        """Decide with these settings, tightened to an organisation's limits. The verdict is to hold if the limits
        require a count of judged models that the evaluation lacks."""
        line = limits.rewriter if self is REWRITER else limits.style
        strict = self.gate.parse(tightened(settings.model_dump(), line.gate), "the gate within the limits")
        uncounted = [UNCOUNTED] if limits.counted and evaluation.get("test_uses") is None else []
        return held_for(self.decide(evaluation, strict, line), uncounted)

    def _settings(self, evaluation: Evaluation, where: str) -> Config:
        return self.gate.parse(mapping_at(evaluation, "settings", "gate"), f"{where}: settings.gate")

    def system(self, evaluation: Evaluation) -> str:
        """Return the name under which the evaluation holds the figures of the evaluated model."""
        return "model" if self is STYLE else str(evaluation.get("candidate", ""))

    def model(self, evaluation: Evaluation) -> str:
        """Return the digest of the evaluated model."""
        digests = mapping_at(evaluation, "digests")
        return str(digests.get("model") if self is STYLE else model_digest(evaluation, self.system(evaluation)))


REWRITER = Kind("rewriter", "teacher", rewriter_gate.GateConfig, rewriter_gate.decide)
STYLE = Kind("style", "baseline", style_gate.GateStyleConfig, style_gate.decide)


def kind_of(evaluation: Evaluation, where: str) -> Kind:
    """Return the kind of an evaluation, by a comparison that only this kind has; raises a DataError for neither."""
    for kind in (REWRITER, STYLE):
        if any(pair.endswith(f"_vs_{kind.against}") for pair in mapping_at(evaluation, "paired")):
            return kind
    raise DataError(f"{where}: no evaluation of a rewriter or a style model. The evaluate stage writes one.")


def model_digest(evaluation: Evaluation, system: str) -> Any:
    """Return the digest of a compared system's model; None if the system has no model."""
    return mapping_at(evaluation, "digests", "models").get(system)


def mapping_at(evaluation: Evaluation, *path: str) -> dict[str, Any]:
    """Return the mapping at a path in the evaluation; empty if it is missing."""
    inner: Any = evaluation
    for name in path:
        inner = inner.get(name) if isinstance(inner, Mapping) else None
    return dict(inner) if isinstance(inner, Mapping) else {}
