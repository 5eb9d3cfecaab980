"""Check a model before a server loads it: the folder must agree with the statement of the release around it.

    with verified_copy(Path("/mnt/models/model"), trust=policy) as (copy, proof):
        proof.version     "09181d0f4159", the start of the model's digest
        proof.summary     "release fivedoctors/rewriter 770a02888766, its digests"
        ... the model is loaded from the copy ...

The model is a folder inside its release (release_folder.py), which the storage initialiser has written. A later
change on the node is detected. A model without a release cannot be compared, so it is refused if a trust policy is
named.

If other users can write to a file, it may change after it was compared and before it is loaded. Neither its
timestamps nor its inode show this: a write through a shared mapping (mmap) to a page that is already dirty updates no
timestamp.
https://man7.org/linux/man-pages/man2/mmap.2.html#NOTES
So each file is copied once, to a folder that no other user can access. The copy is compared, and the copy is loaded.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, NamedTuple

from qinglan.errors import AlteredError, DataError, QinglanError
from qinglan.files.digests import tree_digest
from qinglan.files.files import sha256_file
from qinglan.files.plain_files import open_plain, plain_files, reading, writing
from qinglan.lineage.signing.signed_statement import verify_signatures
from qinglan.lineage.signing.statement import algorithm_fault
from qinglan.lineage.signing.trust import load_trust
from qinglan.lineage.trace.release_folder import (
    FOLDERS,
    MODEL,
    PROVENANCE,
    ReleaseStatement,
    files_inside,
    read_release_statement,
    sorted_files,
)
from qinglan.models.references import refuse_foreign_files
from qinglan.rewriter.card import CARD

VERSION_LENGTH = 12
"""Number of leading characters of a model's digest that name it in predictions, metrics and reports."""

REFETCH_HINT = "Do not load it; fetch the release again, and run `qinglan audit` to see what changed."
WEIGHTS = (".safetensors", ".safetensors.index.json")
COPY_BYTES = 1 << 24
"""Number of bytes that are copied at a time."""


class ModelVerification(NamedTuple):
    """Result of verifying a model's folder."""

    state: Literal["signed", "compared", "unproven"]
    """signed: equal to a release that a trusted key signed. compared: equal to a release whose signature was not
    checked. unproven: there is no release to compare with."""

    model_digest: str
    summary: str
    """Summary of the comparison, as one line for the log."""

    release_digest: str = ""
    name: str = ""

    @property
    def version(self) -> str:
        return self.model_digest[:VERSION_LENGTH]


@contextmanager
def verified_copy(
    folder: Path, weights: bool = True, trust: Path | None = None
) -> Iterator[tuple[Path, ModelVerification]]:
    """Copy a model to a folder of mode 0700, verify the copy with `verify_model`, and delete it when the block ends.

    Without `weights`, the merged weights are not copied and are verified where they are. If an error in the block
    names the copy, its message is changed to name the model's own folder.
    """
    folder = folder.absolute()
    with TemporaryDirectory(prefix="qinglan-model-") as scratch:
        copy = Path(scratch) / MODEL
        try:
            proof = verify_model(folder, weights, trust, copy)
            yield copy, proof
        except QinglanError as error:
            error.lines = tuple(line.replace(str(copy), str(folder)) for line in error.lines)
            error.args = ("\n".join(error.lines),)
            raise


def verify_model(
    folder: Path, weights: bool = True, trust: Path | None = None, copy: Path | None = None
) -> ModelVerification:
    """Compare a model's folder with its release; raises an AlteredError or a DataError if they differ.

    Without `weights`, the merged weights may be missing. With `trust`, the release must have a trusted signature.
    With `copy`, the files are first copied there, and the copies are compared.
    """
    folder = folder.absolute()  # `.` has a parent folder only as an absolute path
    if trust is not None:
        _refuse_unproven(folder)
    listing = plain_files(folder)
    files = listing.files if copy is None else _copied(folder, listing.files, copy, weights)
    if not os.path.lexists(folder.parent / PROVENANCE):
        refuse_foreign_files(folder, weights=False, files=files)  # a server with the base model needs no weights here
        whole = tree_digest({name: sha256_file(path) for name, path in sorted_files(files)})
        return ModelVerification("unproven", whole, "unproven: no release around the model's folder")
    release = read_release_statement(folder.parent)
    release_digests = release_files(folder.parent, release)
    signed = files_inside(release_digests, MODEL)
    for name, why in listing.faults.items():
        raise AlteredError(f"{folder / name}: {why}. {REFETCH_HINT}")
    _refuse_other_files(folder, files, signed, weights)
    try:
        refuse_foreign_files(folder, weights, files)
    except DataError as error:
        raise AlteredError(f"{error} {REFETCH_HINT}") from error
    key = ""
    if trust is not None:
        state, why, key = verify_signatures(
            release.envelope, load_trust(trust), "releaser", release.tenant, release.statement.at
        )
        if state != "attested":
            raise AlteredError(f"{folder.parent / PROVENANCE}: {why}. {REFETCH_HINT}")
    whole = tree_digest({name: release_digests[name] for name in sorted(release_digests, key=str.encode)})
    text = f"release {release.name} {whole[:VERSION_LENGTH]}, its digests"
    text += f", signed by {key[:VERSION_LENGTH]}" if key else ""
    proof: Literal["signed", "compared"] = "signed" if key else "compared"
    return ModelVerification(proof, tree_digest(signed), text, whole, release.name)


def release_files(folder: Path, release: ReleaseStatement) -> dict[str, str]:
    """Return the digests of all files that a release's statement lists, including files that stayed in the store.

    Raises an AlteredError if the statement contradicts itself.
    """
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
    return {**files, PROVENANCE: release.digest}


def is_merged_weights(name: str) -> bool:
    """Return True for merged weights, which a server with base model and adapter does not need."""
    folder, _, file = name.rpartition("/")
    return folder == MODEL and file.endswith(WEIGHTS)


def _refuse_unproven(folder: Path) -> None:
    """Raise an AlteredError if the folder is not the model's folder of a release, with a statement beside it.

    The statement is checked later, when it is read. The target of a symbolic link could change after the check.
    """
    if folder.is_symlink() or folder.name != MODEL or not os.path.lexists(folder.parent / PROVENANCE):
        raise AlteredError(
            f"{folder}: a signature is required (--trust), and this folder is no release's model: it is no folder "
            f"{MODEL}/ with a {PROVENANCE} beside it, or it is a symbolic link. Name the folder {MODEL}/ inside of a "
            "release, as the storage initialiser or `qinglan rollout` lays it out; without --trust a bare folder is "
            "served as unproven."
        )


def _copied(folder: Path, files: Mapping[str, Path], copy: Path, weights: bool) -> dict[str, Path]:
    """Copy each file once and return the paths of the copies. Merged weights are copied only with `weights`."""
    copies = dict(files)
    for name, path in files.items():
        if weights or not is_merged_weights(f"{MODEL}/{name}"):
            target = copies[name] = copy / path.relative_to(folder)
            with writing(target):
                target.parent.mkdir(parents=True, exist_ok=True)
                with target.open("xb") as file:
                    file.writelines(_pieces(path))
    return copies


def _pieces(path: Path) -> Iterator[bytes]:
    """Yield a file's bytes in pieces. A failed read raises an error that names this file instead of the copy."""
    with open_plain(path) as file, reading(path):
        while piece := file.read(COPY_BYTES):
            yield piece


def _refuse_other_files(folder: Path, files: Mapping[str, Path], signed: dict[str, str], weights: bool) -> None:
    for name, path in sorted_files(files):
        if (sha := sha256_file(path)) != signed.get(name):
            what = "the prompts are not those of" if name == CARD else "not as in"
            raise AlteredError(
                f"{folder / name}: {what} its release, which says {signed.get(name, 'nothing')[:VERSION_LENGTH]} of "
                f"it, and it is {sha[:VERSION_LENGTH]}. {REFETCH_HINT}"
            )
    missing = signed.keys() - files.keys()
    gone = sorted(name for name in missing if weights or not is_merged_weights(f"{MODEL}/{name}"))
    if gone:
        raise DataError(f"{folder / gone[0]}: its release names it, and it is not there. Fetch the release again.")
