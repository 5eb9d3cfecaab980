"""Read the signed statements of earlier steps, and compare a step's inputs with them.

    steps = read_earlier_steps(Path(before.path), signer)
    fault = input_fault("evaluation", digest, steps)

Before a step reads its inputs, it refuses those that differ from the outputs that earlier steps signed. Otherwise it
would sign a result that was made from changed bytes.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple

from qinglan.errors import AlteredError, ConfigError, DataError
from qinglan.files.digests import file_digests
from qinglan.lineage.signing.dsse import ENVELOPE_SUFFIX, Envelope, verify_signature
from qinglan.lineage.signing.keys import ROLES, PublicKey, Signer, load_signer
from qinglan.lineage.signing.signed_statement import SignedStatement, read_signed_statement, verify_statement
from qinglan.lineage.signing.statement import ArtifactRef, Statement
from qinglan.lineage.signing.trust import TrustPolicy, policy_at_hand
from qinglan.lineage.trace.release_folder import paper_faults

Proof = Literal["proven", "unproven", "altered"]
"""proven: a known key signed it. unproven: no known key did. altered: a known key's signature does not match."""


class EarlierStep(NamedTuple):
    file: str
    statement: Statement
    proof: Proof


def read_earlier_steps(lineage: Path | None, signer: Signer) -> list[EarlierStep]:
    """Read the statements in the folder, oldest first; malformed statements are skipped.

    Their signatures are checked with the trust policy or, if there is none, with the keys on this machine.
    """
    policy = policy_at_hand()
    keys = {} if policy else _keys_at_hand(signer)
    steps = []
    for path in sorted(lineage.glob(f"*{ENVELOPE_SUFFIX}")) if lineage else ():
        with suppress(DataError, OSError):
            item = read_signed_statement(path)
            proof = _proof_by_policy(item, policy) if policy else _proof_by_keys(item.envelope, keys)
            steps.append(EarlierStep(path.name, item.statement, proof))
    return sorted(steps, key=lambda step: (step.statement.at, step.file))


def _proof_by_policy(item: SignedStatement, policy: TrustPolicy) -> Proof:
    """Check the signatures with the policy, for any tenant, since the tenant is not known here."""
    keys = (policy.keys[signature.key] for signature in item.envelope.signatures if signature.key in policy.keys)
    tenants = {tenant for key in keys for tenant in key.tenants}
    states = {verify_statement(item, policy, tenant)[0] for tenant in tenants}
    return "proven" if "attested" in states else "altered" if "altered" in states else "unproven"


def _proof_by_keys(envelope: Envelope, keys: Mapping[str, PublicKey]) -> Proof:
    known = [signature for signature in envelope.signatures if signature.key in keys]
    if any(verify_signature(envelope, signature, keys[signature.key]) for signature in known):
        return "proven"
    return "altered" if known else "unproven"


def _keys_at_hand(signer: Signer) -> dict[str, PublicKey]:
    """Return the public keys of this machine's private keys, by id. Rotated keys are missing."""
    signers = [signer]
    for role in ROLES:
        with suppress(ConfigError):
            signers.append(load_signer(role))
    return {item.id: PublicKey(item.id, item.key.public_key()) for item in signers}


def input_fault(name: str, digest: str, steps: Sequence[EarlierStep]) -> str:
    """Compare an input with the output of this name that an earlier step signed; returns a fault or an empty text."""
    makers = signed_outputs(name, steps)
    if not makers or digest in {output.digest for _, output in makers}:
        return ""
    stage, output = makers[-1]
    return (
        f"its digest is {digest[:12]}, and {stage} signed {name} with {output.digest[:12]}: it was changed or "
        f"exchanged since. Restore the {name} that {stage} made, or run {stage} and the stages after it again"
    )


def signed_outputs(name: str, steps: Sequence[EarlierStep]) -> list[tuple[str, ArtifactRef]]:
    """Return the signed outputs of this name with which an input may agree, each with its stage.

    `steps` are oldest first. Unproven statements count only if no proven statement names such an output. If a run
    made the output several times, the last one counts. If the newest statement's run made the output, outputs of
    other runs are ignored; KFP's cache or a cross-fitted evaluation can put statements of other runs beside it.
    """

    def makers(of: Sequence[EarlierStep]) -> list[tuple[Statement, ArtifactRef]]:
        return [(step.statement, output) for step in of for output in step.statement.made if output.name == name]

    proven = [step for step in steps if step.proof == "proven"]
    outputs = makers(proven) or makers(steps)
    newest = {statement.run: (statement.stage, output) for statement, output in outputs}
    current = (proven or steps)[-1].statement.run if outputs else ""
    return [newest[current]] if current in newest else list(newest.values())


def refuse_changed_lineage(lineage: Path, steps: Sequence[EarlierStep]) -> None:
    """Raise an AlteredError for malformed or changed statements, and for supporting files that no statement names."""
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
    """Raise an AlteredError for a supporting file that no statement names under the file's name."""
    for name, why in paper_faults(statements, file_digests(lineage)).items():
        raise AlteredError(
            f"{lineage / name}: {why}, so somebody put them there or changed them. Restore the file, or run the "
            "stage that leaves it again."
        )
