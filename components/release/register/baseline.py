"""Write a release of the first model that is served. It is signed, with its whole lineage, but has no verdict.

The first model cannot be compared with another. The deploy gate refuses it until the holder of a releaser's key signs
an override (qinglan/lineage/release/release_notes.py).
"""

from pathlib import Path

from components.release.register.config import RegisterConfig
from components.release.register.stage import (
    Inputs,
    Registered,
    ReleaseDecision,
    checked,
    read_statements,
    write_release,
)
from qinglan.errors import DataError
from qinglan.evaluation.gates.evaluation_file import read_evaluation
from qinglan.evaluation.gates.kinds import kind_of, model_digest
from qinglan.evaluation.gates.verdict import Verdict
from qinglan.lineage.signing.keys import Signer, load_signer
from qinglan.lineage.steps.step_clock import step_clock

UNJUDGED = "No gate has judged this model: it is the first that was served."


def release_baseline(inputs: Inputs, out: Path, config: RegisterConfig, system: str) -> Registered:
    """Write the release of the model that the evaluation calls `system`."""
    signer = load_signer("releaser")
    judged = checked(_decision_without_verdict(inputs, system, signer), inputs, config)
    return write_release(inputs, out, judged, config, signer)


def _decision_without_verdict(inputs: Inputs, system: str, signer: Signer) -> ReleaseDecision:
    evaluation = read_evaluation(inputs.evaluation)
    model = model_digest(evaluation, system)
    if model is None:
        raise DataError(
            f"{inputs.evaluation}: measured no {system!r}. Name a system that it has a model's digest of."
        )
    kind, verdict = kind_of(evaluation, str(inputs.evaluation)), Verdict(False, "hold", [UNJUDGED])
    statements, clock = read_statements(inputs.lineage), step_clock(signer, inputs.lineage)
    return ReleaseDecision(kind, system, evaluation, verdict, str(model), statements, clock, gated=False)
