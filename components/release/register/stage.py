"""Make a signed release of a model that was judged and promoted, with its evidence.

The verdict is computed again from the evaluation's figures, because a word in a file proves nothing. If a store is
set, the release is pushed under its digest, and its name is pointed to it unless another release took the name
meanwhile.
"""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from components.release.register.bom import BomContents, write_bom
from components.release.register.config import RegisterConfig
from components.release.register.model_card import model_card
from components.release.register.publish import current_digest, publish
from components.step_summary import write_summary
from qinglan.errors import AlteredError, ConfigError, DataError, GateHeldError
from qinglan.evaluation.gates.evaluation_file import read_evaluation
from qinglan.evaluation.gates.kinds import Kind, kind_of
from qinglan.evaluation.gates.verdict import Verdict, verdict_bytes
from qinglan.files.digests import FOLDER_ALGORITHM, digest, file_digests, tree_digest
from qinglan.files.files import atomic_folder, sha256_bytes, sha256_file
from qinglan.files.plain_files import plain_files
from qinglan.lineage.release.release_check import trusted_statements
from qinglan.lineage.signing.dsse import IN_TOTO, sign_envelope
from qinglan.lineage.signing.findings import GRAVE
from qinglan.lineage.signing.keys import Signer, load_signer
from qinglan.lineage.signing.model_signature import sign_model
from qinglan.lineage.signing.signed_statement import SignedStatement, read_lineage
from qinglan.lineage.signing.statement import RELEASE_STAGE, ArtifactRef, Statement, to_payload
from qinglan.lineage.signing.statement_index import tenant_fault
from qinglan.lineage.signing.trust import policy_at_hand
from qinglan.lineage.steps.earlier_steps import refuse_changed_papers
from qinglan.lineage.steps.record import Artifact, code_version, environment_inputs, recorded, versions
from qinglan.lineage.steps.step_clock import StepClock, step_clock
from qinglan.lineage.trace.evidence import FileEvidence
from qinglan.lineage.trace.release_folder import (
    BOM,
    EVALUATION,
    LINEAGE,
    MODEL,
    PROVENANCE,
    REPORT,
    SIGNATURE,
    VERDICT,
    files_inside,
    gate_statements,
    release_artifacts,
)  # fmt: skip
from qinglan.lineage.trace.student_prompts import prompt_faults
from qinglan.lineage.trace.walk import findings_of, walk
from qinglan.models.model_files import refuse_disallowed_files
from qinglan.rewriter.card import CARD, read_card, refuse_other_prompts
from qinglan.run_id import RUN_VARIABLE


class Inputs(NamedTuple):
    """Paths of the files and folders from which a release is made."""

    evaluation: Path
    model: Path
    report: Path
    lineage: Path


class Registered(NamedTuple):
    name: str
    release: str
    """Digest of the release's folder, to which the name points."""

    model: str
    evaluation: str
    signed_by: str
    """Id of the releaser's key."""


class ReleaseDecision(NamedTuple):
    """Evaluation, verdict and statements of a release, before anything is written."""

    kind: Kind
    system: str
    """Name of the model in the evaluation."""

    evaluation: Mapping[str, Any]
    verdict: Verdict
    model: str
    statements: list[SignedStatement]
    clock: StepClock
    gated: bool = True
    """False if no gate has judged the model; the release's statement then names no verdict."""

    @property
    def digest(self) -> str:
        """Return the digest of the verdict, as in the gate's statement."""
        return sha256_bytes(verdict_bytes(self.verdict))


def register(inputs: Inputs, out: Path, config: RegisterConfig) -> Registered:
    """Write the release's folder completely or not at all. A model that was held, or not judged, is refused."""
    refuse_stand_in(config)
    signer = load_signer("releaser")
    judged = checked(judge(inputs, signer), inputs, config)
    # Read before the release is written: publish refuses if another release takes the name in between.
    before = current_digest(config)
    registered = write_release(inputs, out, judged, config, signer)
    publish(out, registered.release, config, before, signer)
    return registered


def run_step(
    name: str,
    inputs: Mapping[str, Artifact],
    outputs: Mapping[str, Artifact],
    config: Mapping[str, Any],
    before: Artifact,
    summary: Artifact,
    lineage: Artifact,
) -> None:
    """Run the stage as a step of KFP: it is recorded and signed, and a summary is written.

    `inputs` holds evaluation, model and report in this order, and `outputs` only the release. Their names are not
    used, because a line with two releases has other names for the second release.
    """
    evaluation, model, report = (Path(artifact.path) for artifact in inputs.values())
    [release] = outputs.values()
    parsed = RegisterConfig.parse(config, name)
    with recorded(name, inputs, outputs, settings(parsed), lineage, before) as step:
        registered = register(Inputs(evaluation, model, report, Path(before.path)), Path(release.path), parsed)
        step.facts.update(registered._asdict())
    write_summary(summary, to_markdown(registered))


def register_held(inputs: Inputs, out: Path, config: RegisterConfig) -> Registered:
    """Write the release of a model that the gate held. The release names this verdict, and is not pushed to a store.

    The deploy gate refuses it unless a releaser's key has signed an override
    (qinglan/lineage/release/release_notes.py).
    """
    refuse_stand_in(config)
    signer = load_signer("releaser")
    judged = checked(judge(inputs, signer, "hold"), inputs, config)
    return write_release(inputs, out, judged, config, signer)


def checked(judged: ReleaseDecision, inputs: Inputs, config: RegisterConfig) -> ReleaseDecision:
    """Return the decision with only the statements that may be used; an error if the model must not be released."""
    refuse_disallowed_files(inputs.model)
    if (inputs.model / CARD).exists():
        refuse_other_prompts(inputs.model, read_card(inputs.model))
    judged = judged._replace(statements=proven_statements(judged, inputs, config))
    refuse_untrained_prompts(inputs.model, judged)
    return judged


def refuse_untrained_prompts(model: Path, judged: ReleaseDecision) -> None:
    """Raise an AlteredError if the card's prompts differ from the prompts with which the model was trained."""
    if not (model / CARD).exists():
        return
    statements = [entry.statement for entry in judged.statements]
    if faults := list(prompt_faults(read_card(model).system_prompts, judged.model, statements)):
        raise AlteredError(
            f"{model / CARD}: {faults[0]}. Somebody exchanged the card, or this model is another run's: release the "
            "model as its training wrote it."
        )


def refuse_stand_in(config: RegisterConfig) -> None:
    if config.stand_in_teacher and not config.allow_stand_in:
        raise ConfigError(
            f"{config.name}: a stand-in taught this model, so it is not released. Name a real teacher "
            "(stand_ins.teacher: false); for a demonstration, set register.allow_stand_in."
        )


def write_release(
    inputs: Inputs, out: Path, judged: ReleaseDecision, config: RegisterConfig, signer: Signer
) -> Registered:
    with atomic_folder(out) as folder:
        files = fill_release(folder, inputs, judged, config, signer)
        sealed = sign_envelope(to_payload(release_statement(files, inputs, judged, config)), IN_TOTO, [signer])
        (folder / PROVENANCE).write_bytes(sealed)
    return Registered(config.name, digest(out), judged.model, files[EVALUATION], signer.id)


def judge(inputs: Inputs, signer: Signer, word: Literal["promote", "hold"] = "promote") -> ReleaseDecision:
    """Compute the verdict. Raises a GateHeldError if it is not `word`, and a DataError if no gate's statement has
    this verdict."""
    clock, evaluation = step_clock(signer, inputs.lineage), read_evaluation(inputs.evaluation)
    kind = kind_of(evaluation, str(inputs.evaluation))
    verdict = kind.verdict(evaluation, str(inputs.evaluation))
    if verdict.word != word:
        raise GateHeldError(f"The gate says {verdict.word}: {' '.join(verdict.reasons)}")
    system, model = kind.system(evaluation), kind.model(evaluation)
    judged = ReleaseDecision(kind, system, evaluation, verdict, model, read_statements(inputs.lineage), clock)
    if not gate_statements(judged.statements, sha256_file(inputs.evaluation), judged.digest):
        raise DataError(
            f"{inputs.lineage}: no gate has said of {inputs.evaluation} what its figures say. Run the gate again, "
            "with the settings of that evaluation."
        )
    return judged


def read_statements(lineage: Path) -> list[SignedStatement]:
    if faults := plain_files(lineage).faults:
        name, why = next(iter(faults.items()))
        raise DataError(f"{lineage / name}: {why}. The steps before this one leave nothing like it; run them again.")
    statements = read_lineage(lineage)
    refuse_changed_papers(lineage, [entry.statement for entry in statements])
    return statements


def proven_statements(judged: ReleaseDecision, inputs: Inputs, config: RegisterConfig) -> list[SignedStatement]:
    """Return the statements that the release may use for its bill of materials, its card and its training prompts.

    Steps that an audit of the release would refuse are refused here: steps of another tenant and, if this machine has
    a trust policy, steps without a trusted signature. Steps that a fast clock has dated in the future are allowed:
    the release is dated after them, and an audit accepts it from that date on.
    """
    tenant = config.name.partition("/")[0]
    for entry in judged.statements:
        if why := tenant_fault(entry.statement, tenant):
            raise ConfigError(
                f"register.name {config.name}: the statement of {entry.statement.stage} cannot be in it: {why}. Name "
                "the release after the tenant of its run."
            )
    if (policy := policy_at_hand()) is None:
        return judged.statements
    starts, now = (judged.model, sha256_file(inputs.evaluation), judged.digest), judged.clock.began
    graph = walk(starts, FileEvidence(inputs.lineage), policy, tenant, now=now)
    if faults := [str(finding) for finding in findings_of(graph) if finding.state in GRAVE]:
        raise AlteredError(
            f"{inputs.lineage}: {faults[-1]}. An audit would refuse this release, so it is not signed. If it is a "
            "key, see whose it is (`qinglan keys list`); run the step again from unchanged files, with a trusted key."
        )
    return trusted_statements(judged.statements, policy, tenant)


def fill_release(
    folder: Path, inputs: Inputs, judged: ReleaseDecision, config: RegisterConfig, signer: Signer
) -> dict[str, str]:
    """Write all files except the release's own statement; returns the digest of each file."""
    shutil.copytree(inputs.model, folder / MODEL)
    shutil.copytree(inputs.lineage, folder / LINEAGE)
    shutil.copyfile(inputs.evaluation, folder / EVALUATION)
    shutil.copyfile(inputs.report, folder / REPORT)
    copied = file_digests(folder)
    # The copy is compared, since the model could change between its check and the copy.
    if (model := tree_digest(files_inside(copied, MODEL))) != judged.model:
        raise DataError(
            f"{inputs.model} has digest {model[:12]}, and the verdict in {inputs.evaluation} is about "
            f"{judged.model[:12]}. Evaluate the model that shall be released."
        )
    sign_model(folder / MODEL, folder / SIGNATURE, signer)
    files = {name: sha for name, sha in copied.items() if name.startswith(f"{MODEL}/")}
    contents = BomContents(
        judged.model, files, judged.statements, environment_inputs(code_version()), judged.clock.began
    )
    card = model_card(judged.kind, judged.system, judged.evaluation, judged.verdict, judged.statements, config)
    (folder / BOM).write_text(write_bom(contents, card, config), encoding="utf-8")
    return {**copied, **{name: sha256_file(folder / name) for name in (SIGNATURE, BOM)}}


def release_statement(
    files: Mapping[str, str], inputs: Inputs, judged: ReleaseDecision, config: RegisterConfig
) -> Statement:
    # Name of the model among the outputs of the stage that made it.
    outputs = (output for entry in judged.statements for output in entry.statement.made)
    name = next((output.name for output in outputs if output.digest == judged.model), inputs.model.name)
    used = [
        ArtifactRef(name, judged.model, algorithm=FOLDER_ALGORITHM),
        ArtifactRef("evaluation", files[EVALUATION]),
        ArtifactRef("report", files[REPORT]),
        *([ArtifactRef(VERDICT, judged.digest)] if judged.gated else []),
    ]
    facts = {"verdict": judged.verdict.word if judged.gated else "none", "reasons": judged.verdict.reasons}
    return Statement(
        RELEASE_STAGE,
        tuple(release_artifacts(files)),
        (*used, *environment_inputs(code_version())),
        settings(config),
        facts,
        os.environ.get(RUN_VARIABLE, ""),
        judged.clock.started,
        judged.clock.now(),
        versions(),
    )


def settings(config: RegisterConfig) -> dict[str, Any]:
    """Return the settings for the step's statement, without the store, whose address may name a machine."""
    return config.model_dump(mode="json", exclude={"store"})


def to_markdown(release: Registered) -> str:
    rows = [f"| {name} | `{value}` |" for name, value in release._asdict().items()]
    return "\n".join(["| release | |", "|---|---|", *rows, "", f"`qinglan audit {release.name} --store STORE`", ""])
