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
    fill_release,
    read_statements,
    release_statement,
)
from qinglan.errors import DataError
from qinglan.evaluation.gates.evaluation_file import read_evaluation
from qinglan.evaluation.gates.kinds import kind_of, model_digest
from qinglan.evaluation.gates.verdict import Verdict
from qinglan.files.digests import digest
from qinglan.files.files import atomic_folder
from qinglan.lineage.signing.dsse import IN_TOTO, sign_envelope
from qinglan.lineage.signing.keys import Signer, load_signer
from qinglan.lineage.signing.statement import to_payload
from qinglan.lineage.steps.step_clock import step_clock
from qinglan.lineage.trace.release_folder import EVALUATION, PROVENANCE, VERDICT

UNJUDGED = "No gate has judged this model: it is the first that was served."


def release_baseline(inputs: Inputs, out: Path, config: RegisterConfig, system: str) -> Registered:
    """Write the release of the model that the evaluation calls `system`."""
    signer = load_signer("releaser")
    judged = checked(_decision_without_verdict(inputs, system, signer), inputs, config)
    with atomic_folder(out) as folder:
        files = fill_release(folder, inputs, judged, config, signer)
        statement = release_statement(files, inputs, judged, config)
        used = tuple(part for part in statement.used if part.name != VERDICT)
        statement = statement._replace(used=used, facts={"verdict": "none", "reasons": [UNJUDGED]})
        (folder / PROVENANCE).write_bytes(sign_envelope(to_payload(statement), IN_TOTO, [signer]))
    return Registered(config.name, digest(out), judged.model, files[EVALUATION], signer.id)


def _decision_without_verdict(inputs: Inputs, system: str, signer: Signer) -> ReleaseDecision:
    """Return a decision without a gate, with the evaluation's figures of `system`."""
    evaluation = read_evaluation(inputs.evaluation)
    model = model_digest(evaluation, system)
    if model is None:
        raise DataError(
            f"{inputs.evaluation}: measured no {system!r}. Name a system that it has a model's digest of."
        )
    kind, verdict = kind_of(evaluation, str(inputs.evaluation)), Verdict(False, "hold", [UNJUDGED])
    clock = step_clock(signer, inputs.lineage)
    return ReleaseDecision(kind, system, evaluation, verdict, str(model), read_statements(inputs.lineage), clock)
