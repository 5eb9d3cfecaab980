"""Check a release's own files, and name every fault.

    findings = check_release(folder, load_trust(path), "fivedoctors/rewriter")

If all findings are `verified`, the release may serve. An audit also checks the steps before the release (audit.py).
A file that cannot be parsed is a finding, not an exception.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from qinglan.errors import DataError, QinglanError
from qinglan.evaluation.gates.evaluation_file import read_evaluation
from qinglan.evaluation.gates.kinds import kind_of
from qinglan.evaluation.gates.verdict import Description, LimitReason, Verdict
from qinglan.files.digests import tree_digest
from qinglan.files.files import sha256_file
from qinglan.files.plain_files import Listing, plain_files, read_plain
from qinglan.lineage.release.bom import bom_fault
from qinglan.lineage.signing.dsse import ENVELOPE_SUFFIX
from qinglan.lineage.signing.findings import Finding, State
from qinglan.lineage.signing.model_signature import OTHER_FILES, signature_fault
from qinglan.lineage.signing.signed_statement import (
    SignedStatement,
    read_signed_statement,
    verify_signatures,
    verify_statement,
)
from qinglan.lineage.signing.statement import ArtifactRef, algorithm_fault
from qinglan.lineage.signing.trust import TrustPolicy
from qinglan.lineage.trace.release_folder import (
    BOM,
    EVALUATION,
    FOLDERS,
    HOLD,
    LINEAGE,
    MODEL,
    PROVENANCE,
    REPORT,
    SIGNATURE,
    VERDICT,
    ReleaseStatement,
    files_inside,
    gate_statements,
    paper_faults,
    read_release_statement,
    says_promote,
    sorted_files,
    verdict_file_name,
)
from qinglan.lineage.trace.student_prompts import prompt_faults
from qinglan.models.model_files import disallowed_reason
from qinglan.models.references import reference_faults
from qinglan.rewriter.card import CARD, read_card

REQUIRED_FILES = (SIGNATURE, BOM, EVALUATION, REPORT)


class ReleaseContents(NamedTuple):
    """Content of a release's folder. Its statement exists, but may be untrusted."""

    folder: Path
    listing: Listing
    digests: Mapping[str, str]
    """Digests of the folder's plain files, by path."""

    release: ReleaseStatement
    policy: TrustPolicy
    releaser: str
    """Id of the trusted key that signed the statement; empty if no trusted key did."""

    signed: Mapping[str, ArtifactRef]
    """Files and folders by name, as the statement lists them."""

    lineage: Mapping[str, SignedStatement | str]
    """Statements of the lineage by file; a text instead of a statement says why the file cannot be parsed."""

    absent: frozenset[str] = frozenset()
    """Files that were left in the store on purpose."""

    def signed_digest(self, name: str) -> str:
        return self.signed[name].digest if name in self.signed else ""

    def lineage_statements(self) -> list[SignedStatement]:
        return [item for item in self.lineage.values() if isinstance(item, SignedStatement)]

    def gate(self) -> tuple[list[SignedStatement], bool]:
        """Return the gate's statements about this release, and False if the lineage's verdict does not say promote.

        If the lineage lacks the verdict's file, the second value is True.
        """
        verdict = next((part.digest for part in self.release.statement.used if part.name == VERDICT), "")
        gates = gate_statements(self.lineage_statements(), self.signed_digest(EVALUATION), verdict)
        paper = self.listing.files.get(f"{LINEAGE}/{verdict_file_name(verdict)}")
        return gates, paper is None or says_promote(read_plain(paper))


def check_release(
    folder: Path, policy: TrustPolicy, name: str = "", absent: frozenset[str] = frozenset()
) -> list[Finding]:
    """Return a finding for each file of a release. `name` is the requested release, as tenant/model.

    If some model files are `absent`, the model's own signature cannot be verified, since it covers all files. Then
    only the digests in the release's statement are compared.
    """
    listing = plain_files(folder)
    digests: dict[str, str] = {}
    for file, path in sorted_files(listing.files):
        try:
            digests[file] = sha256_file(path)
        except OSError as error:
            listing.faults[file] = f"cannot be read ({error.strerror})"
    try:
        release = read_release_statement(folder)
    except DataError as error:
        return _without_statement(folder, listing, str(error))
    state, why, key = verify_signatures(release.envelope, policy, "releaser", release.tenant, release.statement.at)
    key = key if state == "attested" else ""
    signed = {part.name: part for part in release.statement.made}
    lineage = _read_lineage(listing, digests, signed)
    contents = ReleaseContents(folder, listing, digests, release, policy, key, signed, lineage, absent)
    faults = [fault for check in CHECKS for fault in check(contents)]
    if name and name != release.name:
        faults.append(Finding("name", "untrusted", f"this is a release of {release.name}, and {name} was asked for"))
    faulty = {fault.what.rstrip("/") for fault in faults}
    right: tuple[State, str] = ("verified", "as in the release's statement")
    if not key:
        right = "untrusted", "as in the statement, which no trusted key signed"
    findings = [*faults, *(Finding(file, *right) for file in digests if file not in {PROVENANCE, *faulty})]
    if not key:
        findings.insert(0, Finding(PROVENANCE, state, why))
    elif PROVENANCE not in {fault.what for fault in faults}:
        findings.insert(0, Finding(PROVENANCE, "verified", f"signed by releaser's key {key[:12]}"))
    return findings


def _without_statement(folder: Path, listing: Listing, why: str) -> list[Finding]:
    """Return the findings if a release's own statement is missing or malformed, so that no file can be trusted."""
    state: State = "altered" if os.path.lexists(folder / PROVENANCE) else "missing"
    findings = [Finding(PROVENANCE, state, why.removeprefix(f"{folder / PROVENANCE}: "))]
    findings += [Finding(name, "altered", fault) for name, fault in listing.faults.items()]
    return findings + [
        Finding(name, "untrusted", "no signed statement names it")
        for name in listing.files
        if name != PROVENANCE and name not in listing.faults
    ]


def _read_lineage(
    listing: Listing, digests: Mapping[str, str], signed: Mapping[str, ArtifactRef]
) -> dict[str, SignedStatement | str]:
    """Read the lineage's statements whose bytes match the release's statement. Other checks report mismatches."""
    statements: dict[str, SignedStatement | str] = {}
    for name, path in listing.files.items():
        same = name in signed and digests.get(name) == signed[name].digest
        if same and name.startswith(f"{LINEAGE}/") and name.endswith(ENVELOPE_SUFFIX):
            try:
                statements[name] = read_signed_statement(path)
            except DataError as error:
                statements[name] = str(error).removeprefix(f"{path}: ")
    return statements


def _check_unlisted_files(contents: ReleaseContents) -> Iterator[Finding]:
    """Refuse links, devices, hidden names, and files that the statement does not name."""
    for name, why in contents.listing.faults.items():
        yield Finding(name, "altered", why)
    for name in contents.listing.files:
        if name not in contents.signed and name != PROVENANCE and name not in contents.listing.faults:
            yield Finding(name, "altered", "the release's statement does not name it")


def _check_named_files(contents: ReleaseContents) -> Iterator[Finding]:
    """Compare files and folders with the statement's digests, and check that it names all required files."""
    for name in sorted({*contents.signed, *FOLDERS, *REQUIRED_FILES}):
        part = contents.signed.get(name)
        if part is None:
            yield Finding(name, "untrusted", "the release's statement does not name it, and must")
        elif why := algorithm_fault(part, folder=name in FOLDERS):
            yield Finding(name, "altered", why)
        elif name in FOLDERS:
            files = {file: signed.digest for file, signed in contents.signed.items()}
            if tree_digest(files_inside(files, name)) != part.digest:
                yield Finding(f"{name}/", "altered", f"the files that are named are not those of {part.digest[:12]}")
        elif name not in contents.digests and name not in {*contents.listing.faults, *contents.absent}:
            yield Finding(name, "missing", "the release's statement names it, and it is not there")
        elif (digest := contents.digests.get(name, part.digest)) != part.digest:
            yield Finding(name, "altered", f"its digest is {digest[:12]}, and the statement says {part.digest[:12]}")


def _check_model_signature(contents: ReleaseContents) -> Iterator[Finding]:
    """Verify the model's own signature with the public model-signing library, as other people would."""
    digest = contents.digests.get(SIGNATURE)
    if contents.absent or digest is None or digest != contents.signed_digest(SIGNATURE):
        return
    if not contents.releaser:
        why = "only a trusted key of the release's statement can verify it, and there is none"
        yield Finding(SIGNATURE, "untrusted", why)
        return
    if any(name.startswith(f"{MODEL}/") or name == MODEL for name in contents.listing.faults):
        yield Finding(f"{MODEL}/", "altered", f"{SIGNATURE} is over plain files, and something else is there")
        return
    if not _in_model(contents.listing.files):
        return
    # The public library is a second implementation: it would notice a fault of our own digests.
    key = contents.policy.keys[contents.releaser].key
    if fault := signature_fault(contents.folder / MODEL, contents.folder / SIGNATURE, key):
        yield Finding(f"{MODEL}/" if OTHER_FILES in fault[1] else SIGNATURE, *fault)


def _check_weights(contents: ReleaseContents) -> Iterator[Finding]:
    """Refuse files that could run code when the model is loaded, and references to other files, even if signed."""
    files = _in_model(name for name in contents.listing.files if name in contents.digests)
    paths = {name: contents.listing.files[f"{MODEL}/{name}"] for name in files}
    faults = reference_faults(paths, _in_model(contents.signed))
    faults |= {name: why for name, path in paths.items() if (why := disallowed_reason(name, path))}
    for name, why in faults.items():
        yield Finding(f"{MODEL}/" if name == "." else f"{MODEL}/{name}", "altered", why)


def _in_model(names: Iterable[str]) -> list[str]:
    return [name.removeprefix(f"{MODEL}/") for name in names if name.startswith(f"{MODEL}/")]


def _check_bom(contents: ReleaseContents) -> Iterator[Finding]:
    """Check that the bill of materials lists the model's files with the statement's digests."""
    if BOM in contents.digests and MODEL in contents.signed:
        files = {name: part.digest for name, part in contents.signed.items() if name.startswith(f"{MODEL}/")}
        if why := bom_fault(contents.folder / BOM, contents.release.name, contents.signed[MODEL], files):
            yield Finding(BOM, "altered", why)


def _check_origin(contents: ReleaseContents) -> Iterator[Finding]:
    """Check that the statement names model and evaluation also as inputs, so that the audit can trace them back."""
    used = {part.digest for part in contents.release.statement.used}
    for name in (MODEL, EVALUATION):
        if (digest := contents.signed_digest(name)) and digest not in used:
            yield Finding(name, "missing", "the release's statement does not say what this is a copy of")


def _check_lineage(contents: ReleaseContents) -> Iterator[Finding]:
    """Check that the lineage's statements can be parsed, and that a statement names each supporting file."""
    for name, statement in contents.lineage.items():
        if isinstance(statement, str):
            yield Finding(name, "altered", statement)
    papers = {name: sha for name, sha in contents.digests.items() if name.startswith(f"{LINEAGE}/")}
    statements = [item.statement for item in contents.lineage_statements()]
    # Of the release's own statement only the inputs count: its outputs are all files here, even planted ones.
    for name, why in paper_faults([*statements, contents.release.statement._replace(made=())], papers).items():
        if contents.signed_digest(name) == papers[name]:
            yield Finding(name, "altered", why)


def _check_prompts(contents: ReleaseContents) -> Iterator[Finding]:
    """Compare the prompts in the model's card with the prompts of its training, which trusted statements name."""
    name = f"{MODEL}/{CARD}"
    if name not in contents.listing.files:
        return
    try:
        prompts = read_card(contents.folder / MODEL).system_prompts
    except QinglanError as error:
        yield Finding(name, "altered", str(error).removeprefix(f"{contents.folder / MODEL / CARD}: "))
        return
    trusted = trusted_statements(contents.lineage_statements(), contents.policy, contents.release.tenant)
    for fault in prompt_faults(prompts, contents.signed_digest(MODEL), [item.statement for item in trusted]):
        yield Finding(name, "altered", fault)


def trusted_statements(lineage: Iterable[SignedStatement], policy: TrustPolicy, tenant: str) -> list[SignedStatement]:
    return [item for item in lineage if verify_statement(item, policy, tenant)[0] == "attested"]


def _check_gate_verdict(contents: ReleaseContents) -> Iterator[Finding]:
    """Check that a gate promoted the model because of this evaluation, before the release was signed."""
    release = contents.release.statement
    gates, promoted = contents.gate()
    if not gates:
        yield Finding(VERDICT, "missing", "the lineage holds no gate's verdict on this evaluation")
    if any(gate.statement.at > release.at for gate in gates):
        yield Finding(PROVENANCE, "altered", "it is dated before the gate's verdict, which it uses")
    if not promoted and release.facts.get(VERDICT) == HOLD:
        why = "the gate says hold, as the release says itself; only a signed override lets it be deployed"
        yield Finding(VERDICT, "missing", why)
    elif not promoted:
        yield Finding(VERDICT, "altered", "the gate's verdict is not to promote")


def _check_figures(contents: ReleaseContents) -> Iterator[Finding]:
    """Decide again from the evaluation's figures and the gate's settings, and compare with the signed verdict.

    A signed verdict may contradict its figures. A verdict to hold is not checked, since it permits no deployment.
    """
    gates, promoted = contents.gate()
    if not gates or not promoted or contents.digests.get(EVALUATION) != contents.signed_digest(EVALUATION):
        return
    try:
        verdicts = judge_again(contents.folder / EVALUATION, [gate.statement.config for gate in gates])
    except (QinglanError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        yield Finding(EVALUATION, "altered", f"no gate can judge its figures ({str(error)[:200]})")
        return
    held_by = [reason for verdict in verdicts if not verdict.promote for reason in verdict.reasons]
    lax = [reason for reason in held_by if isinstance(reason, LimitReason)]
    if wrong := [reason for reason in held_by if not isinstance(reason, LimitReason | Description)]:
        yield Finding(VERDICT, "altered", f"the gate said promote, and the figures say hold: {wrong[0]}")
    elif lax:  # made before there were limits: the bytes are as signed, and no gate of today has promoted them
        why = f"no gate within today's limits promoted it ({lax[0]}); evaluate it again, and release what is promoted"
        yield Finding(VERDICT, "missing", why)


def judge_again(path: Path, rules: Iterable[Any]) -> list[Verdict]:
    """Return verdicts on an evaluation: one by its own settings, and one by the settings in each gate's statement."""
    evaluation = read_evaluation(path)
    kind = kind_of(evaluation, path.name)
    gates = [rule for rule in rules if isinstance(rule, Mapping) and rule.keys() >= kind.gate.model_fields.keys()]
    by_gates = [kind.decide(evaluation, kind.gate.parse(rule, "the gate's statement")) for rule in gates]
    return [kind.verdict(evaluation, path.name), *by_gates]


CHECKS: tuple[Callable[[ReleaseContents], Iterator[Finding]], ...] = (
    _check_unlisted_files,
    _check_named_files,
    _check_model_signature,
    _check_weights,
    _check_bom,
    _check_origin,
    _check_lineage,
    _check_prompts,
    _check_gate_verdict,
    _check_figures,
)
