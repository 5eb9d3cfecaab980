"""What a server asks before it loads a model: whether the folder is what the release around it says.

    proof = proof_of(Path("/mnt/models/model"))
    proof.version     "09181d0f4159": of the model that the release names
    proof.said        "release fivedoctors/rewriter 770a02888766, its digests"

A release lies around its model (release_folder.py), as the storage initialiser laid it there: whatever has changed on
the node since is found here. A bare folder, as a run leaves it, proves nothing but its own digest, and says so; where
a trust policy is named, it is refused.
"""

import os
from pathlib import Path
from typing import Literal, NamedTuple

from qinglan.digests import digest, tree_digest
from qinglan.errors import AlteredError, DataError
from qinglan.files import sha256_file
from qinglan.lineage.release_folder import (
    FOLDERS,
    MODEL,
    PROVENANCE,
    ReleaseStatement,
    files_inside,
    read_release_statement,
    sorted_files,
)
from qinglan.lineage.statement_index import verify_signatures
from qinglan.lineage.trust import load_trust
from qinglan.models.references import refuse_foreign_files
from qinglan.plain_files import plain_files
from qinglan.rewriter.card import CARD

VERSION_LENGTH = 12
"""Characters of a model's digest: what predictions, metrics and people call it by."""

REFETCH_HINT = "Load nothing of it; fetch the release again, and ask `qinglan audit` who changed it."
WEIGHTS = (".safetensors", ".safetensors.index.json")


class ModelVerification(NamedTuple):
    """A model's folder, and what speaks for it."""

    state: Literal["signed", "compared", "unproven"]
    """By a key that counts; by digests that nobody was asked to have signed; by nothing."""

    model_digest: str
    said: str
    """What was compared, for the log."""

    release_digest: str = ""
    name: str = ""
    prompts_digest: str = ""
    """Of the card with the prompts, where it is a rewriter."""

    @property
    def version(self) -> str:
        return self.model_digest[:VERSION_LENGTH]


def verify_model(folder: Path, weights: bool = True, trust: Path | None = None) -> ModelVerification:
    """Altered or a DataError where it is not; without `weights` merged ones may have stayed in the store.

    With `trust` the release around the folder must bear a signature that counts: no release there is no proof.
    """
    folder = folder.absolute()  # also `.` lies in something
    if trust is not None:
        _refuse_unproven(folder)
    if not os.path.lexists(folder.parent / PROVENANCE):
        refuse_foreign_files(folder, weights=False)  # a server that has the base needs none, the others load them
        return ModelVerification("unproven", digest(folder), "unproven: no release around the model's folder")
    claim = read_release_statement(folder.parent)
    files = release_files(folder.parent, claim)
    own = files_inside(files, MODEL)
    _refuse_other_files(folder, own, weights)
    try:
        refuse_foreign_files(folder, weights)
    except DataError as error:
        raise AlteredError(f"{error} {REFETCH_HINT}") from error
    key = _signing_key(folder.parent, claim, trust)
    whole = tree_digest({name: files[name] for name in sorted(files, key=str.encode)})
    said = f"release {claim.name} {whole[:VERSION_LENGTH]}, its digests" + (
        f", signed by {key[:VERSION_LENGTH]}" if key else ""
    )
    return ModelVerification(
        "signed" if key else "compared", tree_digest(own), said, whole, claim.name, own.get(CARD, "")
    )


def release_files(release: Path, claim: ReleaseStatement) -> dict[str, str]:
    """Every file of the release by what its statement says, those that did not come along too."""
    said = {part.name: part.digest for part in claim.statement.made}
    files = {name: sha for name, sha in said.items() if name not in FOLDERS}
    if tree_digest(files_inside(files, MODEL)) != said.get(MODEL):
        raise AlteredError(f"{release / PROVENANCE}: its files are not those of its model. {REFETCH_HINT}")
    return {**files, PROVENANCE: sha256_file(release / PROVENANCE)}


def is_merged_weights(name: str) -> bool:
    """Whether a file of a release is merged weights, which nobody needs who has base and adapter."""
    folder, _, file = name.rpartition("/")
    return folder == MODEL and file.endswith(WEIGHTS)


def _refuse_unproven(folder: Path) -> None:
    """An Altered where no release speaks for this very folder: it must lie in one, as its model, and be no link.

    That the release's statement is a plain file, and is about these bytes, is seen when it is read.
    """
    if folder.is_symlink():
        why = "it is a symbolic link, whose target can be another tomorrow"
    elif folder.name != MODEL:
        why = f"a release keeps its model in a folder named {MODEL}/, and this path ends in {folder.name}"
    elif not os.path.lexists(folder.parent / PROVENANCE):
        why = f"no {PROVENANCE} lies beside it"
    else:
        return
    raise AlteredError(
        f"{folder}: a signature is asked for (--trust), and no release speaks for this folder: {why}. Name the "
        f"folder {MODEL}/ inside of a release, as the storage initialiser or `qinglan rollout` lays it out; without "
        "--trust a bare folder is served as unproven."
    )


def _refuse_other_files(folder: Path, own: dict[str, str], weights: bool) -> None:
    found = plain_files(folder)
    for name, why in found.faults.items():
        raise AlteredError(f"{folder / name}: {why}. {REFETCH_HINT}")
    for name, path in sorted_files(found.files):
        if (sha := sha256_file(path)) != own.get(name):
            what = "the prompts are not those of" if name == CARD else "not as in"
            raise AlteredError(
                f"{path}: {what} its release, which says {own.get(name, 'nothing')[:VERSION_LENGTH]} of it, and "
                "it is "
                f"{sha[:VERSION_LENGTH]}. {REFETCH_HINT}"
            )
    gone = sorted(
        name for name in own.keys() - found.files.keys() if weights or not is_merged_weights(f"{MODEL}/{name}")
    )
    if gone:
        raise DataError(f"{folder / gone[0]}: its release names it, and it is not there. Fetch the release again.")


def _signing_key(release: Path, claim: ReleaseStatement, trust: Path | None) -> str:
    """The key whose signature counts, where somebody said whose may."""
    if trust is None:
        return ""
    worth, why, key = verify_signatures(
        claim.envelope, load_trust(trust), "releaser", claim.tenant, claim.statement.at
    )
    if worth != "attested":
        raise AlteredError(f"{release / PROVENANCE}: {why}. {REFETCH_HINT}")
    return key
