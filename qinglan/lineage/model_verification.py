"""The check of a model before a server loads it: the folder must be what the release around it says.

    proof = verify_model(Path("/mnt/models/model"))
    proof.version     "09181d0f4159": of the model that the release names
    proof.summary     "release fivedoctors/rewriter 770a02888766, its digests"
    ... the model is loaded ...
    refuse_changed(Path("/mnt/models/model"), proof)

The model is a folder inside of its release (release_folder.py), as the storage initialiser lays it out; this finds
whatever has changed on the node since. For a model without a release only its digest is known, which the result says;
if a trust policy is named, it is refused.

The files could be exchanged after they were compared and before they are loaded, and are too large to keep in memory.
So each file's inode and times are noted before it is first read, and compared once the model is loaded: any write,
rename or link in between changes the inode or the change time (ctime), which only root can set back. The
weights are copies by then (own_memory.py): a later write to the files changes nothing.
"""

import os
from collections.abc import Mapping
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
from qinglan.lineage.statement import algorithm_fault
from qinglan.lineage.statement_index import verify_signatures
from qinglan.lineage.trust import load_trust
from qinglan.models.references import refuse_foreign_files
from qinglan.plain_files import plain_files
from qinglan.rewriter.card import CARD

VERSION_LENGTH = 12
"""Characters of a model's digest that name it in predictions, metrics and reports."""

REFETCH_HINT = "Do not load it; fetch the release again, and run `qinglan audit` to see what changed."
WEIGHTS = (".safetensors", ".safetensors.index.json")


class FileIdentity(NamedTuple):
    """A file's inode, size and times, from the kernel."""

    device: int
    inode: int
    size: int
    modified: int
    changed: int


class ModelVerification(NamedTuple):
    """The proof of a model's folder."""

    state: Literal["signed", "compared", "unproven"]
    """signed: by a trusted key. compared: with digests whose signature was not checked. unproven: with nothing."""

    model_digest: str
    summary: str
    """A line about what was compared, for the log."""

    release_digest: str = ""
    name: str = ""
    prompts_digest: str = ""
    """The digest of the card with the prompts, where it is a rewriter."""

    identities: Mapping[str, FileIdentity] = {}
    """Each file of the folder as it was before it was compared."""

    @property
    def version(self) -> str:
        return self.model_digest[:VERSION_LENGTH]


def verify_model(folder: Path, weights: bool = True, trust: Path | None = None) -> ModelVerification:
    """Compare a model's folder with its release; an AlteredError or a DataError if they differ.

    Without `weights` the merged weights may be missing. With `trust` the release must have a trusted signature.
    """
    folder = folder.absolute()  # `.` has a parent folder only as an absolute path
    if trust is not None:
        _refuse_unproven(folder)
    identities = file_identities(folder)
    if not os.path.lexists(folder.parent / PROVENANCE):
        refuse_foreign_files(folder, weights=False)  # a server that has the base model needs no weights here
        summary = "unproven: no release around the model's folder"
        return ModelVerification("unproven", digest(folder), summary, identities=identities)
    release = read_release_statement(folder.parent)
    files = release_files(folder.parent, release)
    signed = files_inside(files, MODEL)
    _refuse_other_files(folder, signed, weights)
    try:
        refuse_foreign_files(folder, weights)
    except DataError as error:
        raise AlteredError(f"{error} {REFETCH_HINT}") from error
    key = _signing_key(folder.parent, release, trust)
    whole = tree_digest({name: files[name] for name in sorted(files, key=str.encode)})
    text = f"release {release.name} {whole[:VERSION_LENGTH]}, its digests"
    text += f", signed by {key[:VERSION_LENGTH]}" if key else ""
    state: Literal["signed", "compared"] = "signed" if key else "compared"
    prompts = signed.get(CARD, "")
    return ModelVerification(state, tree_digest(signed), text, whole, release.name, prompts, identities)


def file_identities(folder: Path) -> dict[str, FileIdentity]:
    """The identity of each plain file, by its path in the folder."""
    stats = {name: path.stat(follow_symlinks=False) for name, path in plain_files(folder).files.items()}
    return {
        name: FileIdentity(about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns)
        for name, about in stats.items()
    }


def refuse_changed(folder: Path, proof: ModelVerification) -> None:
    """Raise an AlteredError if a file changed since it was compared; call it when the model is loaded."""
    now = file_identities(folder.absolute())
    changed = sorted(name for name in {*now, *proof.identities} if now.get(name) != proof.identities.get(name))
    if changed:
        raise AlteredError(
            f"{folder / changed[0]}: it was changed while the model was being loaded, so what was loaded may not be "
            f"what was compared. {REFETCH_HINT}"
        )


def release_files(folder: Path, release: ReleaseStatement) -> dict[str, str]:
    """Digests of all files of the release by its statement, also of those that stayed in the store."""
    subjects = release.statement.made
    for part in subjects:
        if why := algorithm_fault(part, folder=part.name in FOLDERS):
            raise AlteredError(f"{folder / PROVENANCE}: {part.name}: {why}. {REFETCH_HINT}")
    signed = {part.name: part.digest for part in subjects}
    if len(signed) < len(subjects):
        raise AlteredError(f"{folder / PROVENANCE}: it names a file twice. {REFETCH_HINT}")
    files = {name: sha for name, sha in signed.items() if name not in FOLDERS}
    if tree_digest(files_inside(files, MODEL)) != signed.get(MODEL):
        raise AlteredError(f"{folder / PROVENANCE}: its files are not those of its model. {REFETCH_HINT}")
    return {**files, PROVENANCE: sha256_file(folder / PROVENANCE)}


def is_merged_weights(name: str) -> bool:
    """True for merged weights, which a server with base and adapter does not need."""
    folder, _, file = name.rpartition("/")
    return folder == MODEL and file.endswith(WEIGHTS)


def _refuse_unproven(folder: Path) -> None:
    """Raise an AlteredError if this is not the model's folder of a release, or is a link.

    Whether the release's statement is a plain file, and names these bytes, is checked when it is read.
    """
    if folder.is_symlink():
        why = "it is a symbolic link, whose target can change"
    elif folder.name != MODEL:
        why = f"a release keeps its model in a folder named {MODEL}/, and this path ends in {folder.name}"
    elif not os.path.lexists(folder.parent / PROVENANCE):
        why = f"no {PROVENANCE} lies beside it"
    else:
        return
    raise AlteredError(
        f"{folder}: a signature is required (--trust), and this folder is no release's model: {why}. Name the "
        f"folder {MODEL}/ inside of a release, as the storage initialiser or `qinglan rollout` lays it out; without "
        "--trust a bare folder is served as unproven."
    )


def _refuse_other_files(folder: Path, signed: dict[str, str], weights: bool) -> None:
    listing = plain_files(folder)
    for name, why in listing.faults.items():
        raise AlteredError(f"{folder / name}: {why}. {REFETCH_HINT}")
    for name, path in sorted_files(listing.files):
        if (sha := sha256_file(path)) != signed.get(name):
            what = "the prompts are not those of" if name == CARD else "not as in"
            raise AlteredError(
                f"{path}: {what} its release, which says {signed.get(name, 'nothing')[:VERSION_LENGTH]} of it, and "
                f"it is {sha[:VERSION_LENGTH]}. {REFETCH_HINT}"
            )
    missing = signed.keys() - listing.files.keys()
    gone = sorted(name for name in missing if weights or not is_merged_weights(f"{MODEL}/{name}"))
    if gone:
        raise DataError(f"{folder / gone[0]}: its release names it, and it is not there. Fetch the release again.")


def _signing_key(folder: Path, release: ReleaseStatement, trust: Path | None) -> str:
    """The trusted key that signed the release; "" without a policy."""
    if trust is None:
        return ""
    policy = load_trust(trust)
    state, why, key = verify_signatures(release.envelope, policy, "releaser", release.tenant, release.statement.at)
    if state != "attested":
        raise AlteredError(f"{folder / PROVENANCE}: {why}. {REFETCH_HINT}")
    return key
