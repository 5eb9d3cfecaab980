"""Run the gate as a pipeline step, which is the same for every kind of model."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from qinglan.evaluation.gates.evaluation_file import read_evaluation
from qinglan.evaluation.gates.gate_limits import Limits
from qinglan.evaluation.gates.kinds import Kind
from qinglan.evaluation.gates.locked_test_uses import own_store_faults
from qinglan.evaluation.gates.verdict import held_for, to_markdown
from qinglan.lineage.signing.trust import policy_at_hand
from qinglan.lineage.steps.record import Artifact, recorded
from qinglan.lineage.steps.step_inputs import add_verdict


def run_gate(
    kind: Kind, evaluation: Artifact, config: Mapping[str, Any], before: Artifact, decision: Artifact,
    lineage: Artifact, stage: str = "gate", evaluation_name: str = "evaluation",
) -> str:  # fmt: skip
    """Decide on a written evaluation, record and sign the verdict, and show it; returns the verdict's word.

    If a line has two gates, `stage` and `evaluation_name` name those of the second gate.
    """
    settings, policy = kind.gate.parse(config, "gate"), policy_at_hand()
    limits = policy.evaluate if policy else Limits()
    inputs = {evaluation_name: evaluation}
    with recorded(stage, inputs, {}, settings.model_dump(mode="json"), lineage, before) as step:
        figures = read_evaluation(Path(evaluation.path))
        verdict = held_for(kind.decide_within(figures, settings, limits), own_store_faults(figures))
        step.facts.update(verdict=verdict.word, reasons=verdict.reasons)
        add_verdict(step, verdict)
    Path(decision.path).write_text(to_markdown(verdict), encoding="utf-8")
    return verdict.word
