"""The signed statements of the steps before a step, and the comparison of its inputs with them.

    steps = read_earlier_steps(Path(before.path), signer)
    fault = input_fault("evaluation", digest, steps)

An input whose bytes are not those that the step that made it has signed is refused before the step reads it: else the
step would sign a result of bytes that somebody changed.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple

from qinglan.errors import AlteredError, ConfigError, DataError
from qinglan.files.digests import file_digests
from qinglan.files.plain_files import read_plain
from qinglan.lineage.signing.dsse import ENVELOPE_SUFFIX, Envelope, open_envelope, verify_signature
from qinglan.lineage.signing.keys import ROLES, PublicKey, Signer, load_signer
from qinglan.lineage.signing.statement import ArtifactRef, Statement, from_payload, parse_time
from qinglan.lineage.signing.statement_index import signing_role
from qinglan.lineage.signing.trust import TrustPolicy, policy_at_hand
from qinglan.lineage.trace.release_folder import paper_faults

Proof = Literal["proven", "unproven", "altered"]
"""State of a signature: made by a known key, by no known key, or a known key's that does not fit the bytes."""


class EarlierStep(NamedTuple):
    file: str
    statement: Statement
    proof: Proof


def read_earlier_steps(lineage: Path | None, signer: Signer) -> list[EarlierStep]:
    """The statements in the folder, oldest first; what is no statement is skipped.

    Signatures are checked by the trust policy, or with the keys of this machine if it has none.
    """
    policy = policy_at_hand()
    keys = {} if policy else {item.id: item for item in [signer, *_signers_at_hand()]}
    steps = []
    for path in sorted(lineage.glob(f"*{ENVELOPE_SUFFIX}")) if lineage else ():
        with suppress(DataError, OSError):
            envelope = open_envelope(read_plain(path), str(path))
            statement = from_payload(envelope.payload, str(path))
            parse_time(statement.ended)
            proof = _proof_by_policy(envelope, statement, policy) if policy else _proof_by_keys(envelope, keys)
            steps.append(EarlierStep(path.name, statement, proof))
    return sorted(steps, key=lambda step: (step.statement.at, step.file))


def _proof_by_policy(envelope: Envelope, statement: Statement, policy: TrustPolicy) -> Proof:
    """Check for a trusted signature for any tenant, as the tenant is not known here."""
    signing = (policy.keys[signature.key] for signature in envelope.signatures if signature.key in policy.keys)
    tenants = {tenant for key in signing for tenant in key.tenants}
    role = signing_role(statement)
    states = {policy.check_signatures(envelope, role, tenant, statement.at)[0] for tenant in tenants}
    return "proven" if "attested" in states else "altered" if "altered" in states else "unproven"


def _proof_by_keys(envelope: Envelope, signers: Mapping[str, Signer]) -> Proof:
    """Check for a signature of one of these keys: a pod has the keys of its step, and maybe no policy."""
    known = [signature for signature in envelope.signatures if signature.key in signers]
    for signature in known:
        if verify_signature(envelope, signature, PublicKey(signature.key, signers[signature.key].key.public_key())):
            return "proven"
    return "altered" if known else "unproven"


def _signers_at_hand() -> Iterator[Signer]:
    """The keys in the folder that can be loaded, as a step may have only its own; rotated keys were deleted."""
    for role in ROLES:
        with suppress(ConfigError):
            yield load_signer(role)


def input_fault(name: str, digest: str, steps: Sequence[EarlierStep]) -> str:
    """Why an input is not the artifact of this name that an earlier step signed; "" if it is, or none signed one."""
    makers = signed_outputs(name, steps)
    if not makers or digest in {output.digest for _, output in makers}:
        return ""
    stage, output = makers[-1]
    return (
        f"its digest is {digest[:12]}, and {stage} signed {name} with {output.digest[:12]}: it was changed or "
        f"exchanged since. Restore the {name} that {stage} made, or run {stage} and the stages after it again"
    )


def signed_outputs(name: str, steps: Sequence[EarlierStep]) -> list[tuple[str, ArtifactRef]]:
    """The stage and output of each statement whose output of this name may be an input now; `steps` oldest first.

    Unproven statements count only if no proven one names such an output. Of a stage that ran again in the same run,
    the last time counts. The run of the newest statement comes first: beside it lie statements of runs that KFP's
    cache answered with, and of a cross-fitted run's folds.
    """
    proven = [step for step in steps if step.proof == "proven"]
    outputs = _makers(name, proven) or _makers(name, steps)
    newest = {statement.run: (statement.stage, output) for statement, output in outputs}
    current = (proven or steps)[-1].statement.run if outputs else ""
    return [newest[current]] if current in newest else list(newest.values())


def _makers(name: str, steps: Sequence[EarlierStep]) -> list[tuple[Statement, ArtifactRef]]:
    return [(step.statement, output) for step in steps for output in step.statement.made if output.name == name]


def refuse_changed_lineage(lineage: Path, steps: Sequence[EarlierStep]) -> None:
    """Refuse statements that were changed, by a known key's signature, and supporting files that none names."""
    read = {step.file for step in steps}
    if broken := [path for path in sorted(lineage.glob(f"*{ENVELOPE_SUFFIX}")) if path.name not in read]:
        raise AlteredError(
            f"{broken[0]}: no statement of a step, so somebody put it there or changed it. Restore the file, or run "
            "the stage that leaves it again."
        )
    for step in steps:
        if step.proof == "altered":
            raise AlteredError(
                f"{lineage / step.file}: its signature is not over these bytes, so the statement of "
                f"{step.statement.stage} was changed. Restore it, or run {step.statement.stage} and the stages after "
                "it again."
            )
    refuse_changed_papers(lineage, [step.statement for step in steps])


def refuse_changed_papers(lineage: Path, statements: Sequence[Statement]) -> None:
    """Refuse supporting files of a lineage that no statement names under their name."""
    for name, why in paper_faults(statements, file_digests(lineage)).items():
        raise AlteredError(
            f"{lineage / name}: {why}, so somebody put them there or changed them. Restore the file, or run the "
            "stage that leaves it again."
        )
