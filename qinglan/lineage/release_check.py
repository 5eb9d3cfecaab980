"""Every way in which a release's own files can be wrong, each named. No finding but verified: it may serve.

    findings = check_release(folder, load_trust(path), "fivedoctors/rewriter")

What was before the release is for the audit's walk, audit.py. Nothing here raises for what it reads: a file that
nobody can make sense of is a finding, not a failure.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from qinglan.digests import tree_digest
from qinglan.errors import DataError
from qinglan.files import sha256_file
from qinglan.lineage.bom import bom_fault
from qinglan.lineage.dsse import ENVELOPE_SUFFIX
from qinglan.lineage.findings import Finding, State
from qinglan.lineage.gate_verdict import (
    HOLD,
    VERDICT,
    LineageStatement,
    gate_statements,
    read_lineage_statement,
    says_promote,
    unreferenced_files,
    verdict_file_name,
)
from qinglan.lineage.model_signature import OTHER_FILES, signature_fault
from qinglan.lineage.release_folder import (
    BOM,
    EVALUATION,
    FOLDERS,
    LINEAGE,
    MODEL,
    PROVENANCE,
    REPORT,
    SIGNATURE,
    Release,
    ReleaseStatement,
    files_inside,
    read_release,
    read_release_statement,
    sorted_files,
)  # fmt: skip
from qinglan.lineage.statement import ArtifactRef, algorithm_fault
from qinglan.lineage.statement_index import verify_signatures
from qinglan.lineage.trust import TrustPolicy
from qinglan.models.model_files import disallowed_reason
from qinglan.models.references import reference_faults
from qinglan.plain_files import Listing, plain_files

__all__ = ["Release", "check_release", "read_release"]

RIGHT = "as the release's statement has it"
REQUIRED_FILES = (SIGNATURE, BOM, EVALUATION, REPORT)


class ReleaseContents(NamedTuple):
    """A release's folder, read; its statement is there, whether or not it counts."""

    folder: Path
    listing: Listing
    digests: Mapping[str, str]
    """Of each plain file."""

    claim: ReleaseStatement
    policy: TrustPolicy
    releaser: str
    """The key whose signature over the statement counts; "" where none does."""

    worth: State
    """What the signatures over it are worth."""

    unsigned: str
    """Why none does."""

    made: Mapping[str, ArtifactRef]
    """What the statement says of files and folders."""

    told: Mapping[str, LineageStatement | str]
    """The statements of the lineage, by their files; or why one is none."""

    absent: frozenset[str] = frozenset()
    """Files that were left in the store on purpose."""

    def said(self, name: str) -> str:
        """The digest that the statement gives it."""
        return self.made[name].digest if name in self.made else ""

    def readable(self) -> list[LineageStatement]:
        return [one for one in self.told.values() if isinstance(one, LineageStatement)]


def check_release(
    folder: Path, policy: TrustPolicy, name: str = "", absent: frozenset[str] = frozenset()
) -> list[Finding]:
    """Each file with its state; `name` is what was asked for, tenant and model.

    Without the `absent` files of the model its own signature, which is over all of them, cannot be verified: the
    release's statement, which has every file's digest, stands for it.
    """
    listing = plain_files(folder)
    digests, unreadable = _digests(listing)
    listing.faults.update(unreadable)
    try:
        claim = read_release_statement(folder)
    except DataError as error:
        return [_no_statement(folder, str(error)), *_unsigned_files(listing)]
    worth, why, key = verify_signatures(claim.envelope, policy, "releaser", claim.tenant, claim.statement.at)
    key = key if worth == "attested" else ""
    made = {part.name: part for part in claim.statement.made}
    told = _lineage_statements(listing, digests, made)
    seen = ReleaseContents(folder, listing, digests, claim, policy, key, worth, why, made, told, absent)
    faults = [fault for check in CHECKS for fault in check(seen)]
    faults += _check_name(seen, name)
    return [*_check_statement(seen, {fault.what for fault in faults}), *faults, *_verified_files(seen, faults)]


def _lineage_statements(
    listing: Listing, digests: Mapping[str, str], made: Mapping[str, ArtifactRef]
) -> dict[str, LineageStatement | str]:
    """Those that are as the release's statement has them: of the others their bytes tell enough."""
    found: dict[str, LineageStatement | str] = {}
    for name, path in listing.files.items():
        same = name in made and digests.get(name) == made[name].digest
        if same and name.startswith(f"{LINEAGE}/") and name.endswith(ENVELOPE_SUFFIX):
            try:
                found[name] = read_lineage_statement(path)
            except DataError as error:
                found[name] = str(error).removeprefix(f"{path}: ")
    return found


def _digests(listing: Listing) -> tuple[dict[str, str], dict[str, str]]:
    digests, faults = {}, {}
    for name, path in sorted_files(listing.files):
        try:
            digests[name] = sha256_file(path)
        except OSError as error:
            faults[name] = f"cannot be read ({error.strerror})"
    return digests, faults


def _no_statement(folder: Path, why: str) -> Finding:
    there = os.path.lexists(folder / PROVENANCE)
    return Finding(PROVENANCE, "altered" if there else "missing", why.removeprefix(f"{folder / PROVENANCE}: "))


def _unsigned_files(listing: Listing) -> Iterator[Finding]:
    for name, why in listing.faults.items():
        yield Finding(name, "altered", why)
    for name in listing.files:
        if name != PROVENANCE and name not in listing.faults:
            yield Finding(name, "untrusted", "no statement speaks for it")


def _check_statement(seen: ReleaseContents, faulty: set[str]) -> Iterator[Finding]:
    """What the signatures over the release's own statement are worth."""
    if not seen.releaser:
        yield Finding(PROVENANCE, seen.worth, seen.unsigned)
    elif PROVENANCE not in faulty:
        yield Finding(PROVENANCE, "verified", f"signed by releaser's key {seen.releaser[:12]}")


def _check_name(seen: ReleaseContents, name: str) -> list[Finding]:
    if not name or name == seen.claim.name:
        return []
    return [Finding("name", "untrusted", f"this is a release of {seen.claim.name}, and {name} was asked for")]


def _check_unlisted_files(seen: ReleaseContents) -> Iterator[Finding]:
    """Links, devices, hidden names, and files that nobody has named."""
    for name, why in seen.listing.faults.items():
        yield Finding(name, "altered", why)
    for name in seen.listing.files:
        if name not in seen.made and name != PROVENANCE and name not in seen.listing.faults:
            yield Finding(name, "altered", "the release's statement does not name it")


def _check_named_files(seen: ReleaseContents) -> Iterator[Finding]:
    """What the statement names is there, and its bytes are those."""
    for name in sorted({*seen.made, *FOLDERS, *REQUIRED_FILES}):
        part = seen.made.get(name)
        if part is None:
            yield Finding(name, "untrusted", "the release's statement does not speak of it")
        elif why := algorithm_fault(part, folder=name in FOLDERS):
            yield Finding(name, "altered", why)
        elif name in FOLDERS:
            yield from _check_folder_digest(seen, name, part)
        elif name not in seen.digests and name not in {*seen.listing.faults, *seen.absent}:
            yield Finding(name, "missing", "the release's statement names it, and it is not there")
        elif (found := seen.digests.get(name, part.digest)) != part.digest:
            yield Finding(name, "altered", f"its digest is {found[:12]}, and the statement says {part.digest[:12]}")


def _check_folder_digest(seen: ReleaseContents, folder: str, part: ArtifactRef) -> Iterator[Finding]:
    """What the statement says of the folder is what it says of its files."""
    said = {name: one.digest for name, one in seen.made.items()}
    if tree_digest(files_inside(said, folder)) != part.digest:
        yield Finding(f"{folder}/", "altered", f"the files that are named are not those of {part.digest[:12]}")


def _check_model_signature(seen: ReleaseContents) -> Iterator[Finding]:
    """The model's own signature, by the library that others verify it with."""
    if seen.absent or SIGNATURE not in seen.digests or seen.digests[SIGNATURE] != seen.said(SIGNATURE):
        return
    if not seen.releaser:
        yield Finding(SIGNATURE, "untrusted", "it takes the key of the release's statement, and none counts")
        return
    if any(name.startswith(f"{MODEL}/") or name == MODEL for name in seen.listing.faults):
        yield Finding(f"{MODEL}/", "altered", f"{SIGNATURE} is over plain files, and something else is there")
        return
    if not any(name.startswith(f"{MODEL}/") for name in seen.listing.files):
        return
    key = seen.policy.keys[seen.releaser].key
    if fault := signature_fault(seen.folder / MODEL, seen.folder / SIGNATURE, key):
        yield Finding(f"{MODEL}/" if OTHER_FILES in fault[1] else SIGNATURE, *fault)


def _check_weights(seen: ReleaseContents) -> Iterator[Finding]:
    """Nothing that could run when the model is loaded, and nothing from elsewhere, whoever has signed it."""
    files = _in_model(name for name in seen.listing.files if name in seen.digests)
    paths = {name: seen.listing.files[f"{MODEL}/{name}"] for name in files}
    faults = reference_faults(paths, _in_model(seen.made))
    faults |= {name: why for name, path in paths.items() if (why := disallowed_reason(name, path))}
    for name, why in faults.items():
        yield Finding(f"{MODEL}/" if name == "." else f"{MODEL}/{name}", "altered", why)


def _in_model(names: Iterable[str]) -> list[str]:
    """Paths in the model's folder."""
    return [name.removeprefix(f"{MODEL}/") for name in names if name.startswith(f"{MODEL}/")]


def _check_bom(seen: ReleaseContents) -> Iterator[Finding]:
    """It is about what the statement names; whether that is there too is said of the files."""
    if BOM in seen.digests and MODEL in seen.made:
        files = {name: one.digest for name, one in seen.made.items() if name.startswith(f"{MODEL}/")}
        if why := bom_fault(seen.folder / BOM, seen.claim.name, seen.made[MODEL], files):
            yield Finding(BOM, "altered", why)


def _check_origin(seen: ReleaseContents) -> Iterator[Finding]:
    """The statement says what model and evaluation are copies of: from there the audit goes on."""
    used = {part.digest for part in seen.claim.statement.used}
    for name in (MODEL, EVALUATION):
        if seen.said(name) and seen.said(name) not in used:
            yield Finding(name, "missing", "the release's statement does not say what this is a copy of")


def _check_lineage(seen: ReleaseContents) -> Iterator[Finding]:
    """Statements can be read, and papers are the bytes of something that one of them names."""
    for name, told in seen.told.items():
        if isinstance(told, str):
            yield Finding(name, "altered", told)
    papers = {name: sha for name, sha in seen.digests.items() if name.startswith(f"{LINEAGE}/")}
    said = [one.statement for one in seen.readable()]
    # Of its own statement what it used: what it made is every file here, whoever put it there.
    for name in unreferenced_files([*said, seen.claim.statement._replace(made=())], papers):
        if seen.said(name) == papers[name]:
            yield Finding(name, "altered", "no statement says whose bytes these are")


def _check_gate_verdict(seen: ReleaseContents) -> Iterator[Finding]:
    """This evaluation has led to this verdict, and the verdict to this release."""
    verdict = next((part.digest for part in seen.claim.statement.used if part.name == VERDICT), "")
    gates = gate_statements(seen.readable(), seen.said(EVALUATION), verdict)
    if not gates:
        yield Finding(VERDICT, "missing", "the lineage holds no gate's verdict on this evaluation")
    for gate in gates:
        if gate.statement.at > seen.claim.statement.at:
            yield Finding(PROVENANCE, "altered", "it is dated before the gate's verdict, which it uses")
    paper = seen.listing.files.get(f"{LINEAGE}/{verdict_file_name(verdict)}")
    if paper and not says_promote(paper.read_bytes()):
        facts = seen.claim.statement.facts
        if isinstance(facts, Mapping) and facts.get(VERDICT) == HOLD:
            why = "the gate says hold, as the release says itself; only a signed override lets it be deployed"
            yield Finding(VERDICT, "missing", why)
        else:
            yield Finding(VERDICT, "altered", "the gate's verdict is not to promote")


CHECKS: tuple[Callable[[ReleaseContents], Iterator[Finding]], ...] = (
    _check_unlisted_files,
    _check_named_files,
    _check_model_signature,
    _check_weights,
    _check_bom,
    _check_origin,
    _check_lineage,
    _check_gate_verdict,
)


def _verified_files(seen: ReleaseContents, faults: list[Finding]) -> Iterator[Finding]:
    """Whatever is there and was found right; without a signature that counts, nothing is."""
    faulty = {fault.what.rstrip("/") for fault in faults}
    for name in seen.digests:
        if name == PROVENANCE or name in faulty:
            continue
        if seen.releaser:
            yield Finding(name, "verified", RIGHT)
        else:
            yield Finding(name, "untrusted", "as the statement has it, which is signed by no key that counts")
