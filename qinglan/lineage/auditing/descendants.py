"""Descendants of a digest, read from the statements below folders.

    descendants = which_models(digest, [Path("runs")], policy, store="runs/store")

Statements are read from the files each time, a few thousand a second. They may be forged, so each descendant says if
its statement's signature is trusted.
"""

import hashlib
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from qinglan.errors import DataError, QinglanError
from qinglan.files.plain_files import read_plain
from qinglan.lineage.signing.dsse import ENVELOPE_SUFFIX, Envelope, open_envelope
from qinglan.lineage.signing.statement import RELEASE_STAGE, ArtifactRef, Statement, from_payload
from qinglan.lineage.signing.statement_index import signing_role, verify_signatures
from qinglan.lineage.signing.trust import TrustPolicy
from qinglan.lineage.trace.name_moves import entry_fault

DIGEST = re.compile(r"[0-9a-f]{8,64}")
MAX_SHOWN = 200


class Descendant(NamedTuple):
    """Something that was made from the digest in question, directly or through other steps."""

    what: str
    digest: str
    stage: str
    ended: str
    names: tuple[str, ...]
    """A release's name, by its statement; with (now) where that name points to it in the store."""

    where: str
    fault: str
    """Why its statement's signature is not trusted; empty if it is."""

    total: int
    """The number of all descendants, also of those that are not shown."""


class SignedFile(NamedTuple):
    path: Path
    statement: Statement

    @property
    def is_release(self) -> bool:
        return self.statement.stage == RELEASE_STAGE

    def outputs(self) -> Iterator[ArtifactRef]:
        """The step's outputs, without files inside of folders and without inputs that it only passed on."""
        used = {part.digest for part in self.statement.used}
        for part in self.statement.made:
            if "/" not in part.name and (self.is_release or part.digest not in used):
                yield part


def which_models(
    digest: str, roots: Iterable[Path], policy: TrustPolicy, store: str = "", most: int = MAX_SHOWN
) -> list[Descendant]:
    """The descendants of a digest: releases first, then models, then the rest, the newest first."""
    files = read_signed_files(roots, store)
    outputs = [(file, part) for file in descend(_whole_digest(digest, files), files) for part in file.outputs()]
    outputs.sort(key=lambda output: (output[1].name, output[1].digest))
    outputs.sort(key=lambda output: output[0].statement.ended, reverse=True)
    outputs.sort(key=lambda output: _rank(output[0], output[1].name))
    pointers = _pointers(store, policy)
    return [_descendant(file, part, pointers, policy, len(outputs)) for file, part in outputs[:most]]


def read_signed_files(roots: Iterable[Path], store: str = "") -> list[SignedFile]:
    """Every statement below the folders, and below the store if it is a folder; copies of one count once."""
    if store and "://" not in store:
        roots = [*roots, Path(store)]
    files: dict[str, SignedFile] = {}
    for path in sorted(statement_paths(root.resolve() for root in roots)):
        try:
            sealed = read_plain(path)
            sha = hashlib.sha256(sealed).hexdigest()
            if sha not in files:
                files[sha] = SignedFile(path, from_payload(open_envelope(sealed).payload))
        except (DataError, OSError):
            continue  # not a statement, or deleted meanwhile; an audit of its folder reports it
    return list(files.values())


def statement_paths(roots: Iterable[Path]) -> set[Path]:
    """Files with the ending of a statement; links are not followed."""
    folders = ((Path(folder), names) for root in roots for folder, _, names in os.walk(root))
    paths = (folder / name for folder, names in folders for name in names if name.endswith(ENVELOPE_SUFFIX))
    return {path for path in paths if path.is_file() and not path.is_symlink()}


def descend(digest: str, files: Sequence[SignedFile]) -> list[SignedFile]:
    """The statements that used the digest, or what was made from it."""
    users: dict[str, list[int]] = defaultdict(list)
    for number, file in enumerate(files):
        for used in {part.digest for part in file.statement.used}:
            users[used].append(number)
    reached: set[int] = set()
    queue = list(users[digest])
    while queue:
        number = queue.pop()
        if number not in reached:
            reached.add(number)
            queue.extend(user for part in files[number].outputs() for user in users.get(part.digest, ()))
    return [files[number] for number in sorted(reached)]


def _whole_digest(digest: str, files: Iterable[SignedFile]) -> str:
    """The digest that begins with the given characters."""
    if not DIGEST.fullmatch(digest):
        raise DataError(f"{digest}: no file here, and no digest: those have 8 to 64 characters of 0-9 and a-f.")
    if len(digest) == 64:
        return digest
    parts = (part for file in files for part in (*file.statement.used, *file.outputs()))
    matches = {part.digest for part in parts if part.digest.startswith(digest)}
    if len(matches) > 1:
        raise DataError(f"{digest}: more than one digest begins with this. Give more of it.")
    return matches.pop() if matches else digest


def _descendant(
    file: SignedFile, part: ArtifactRef, pointers: dict[str, list[str]], policy: TrustPolicy, total: int
) -> Descendant:
    statement = file.statement
    what = f"release, {part.name}" if file.is_release else part.name
    fault = _signature_fault(file, policy)
    names = _release_names(file, pointers) if file.is_release else ()
    return Descendant(what, part.digest, statement.stage, statement.ended, names, str(file.path), fault, total)


def _release_names(file: SignedFile, pointers: dict[str, list[str]]) -> tuple[str, ...]:
    """Names that point to the release now, by its folder in the store, which is its digest; else the name it has."""
    pointing = tuple(f"{name} (now)" for name in pointers.get(file.path.parent.name, ()))
    name = _config_text(file.statement, "name")
    return pointing or ((name,) if name else ())


def _rank(file: SignedFile, name: str) -> int:
    """Sort order: a release's model, then other models, then other artifacts, then a release's other files."""
    if file.is_release:
        return 0 if name == "model" else 3
    return 1 if "model" in name else 2


def _signature_fault(file: SignedFile, policy: TrustPolicy) -> str:
    """Why the signature is not trusted; empty if it is."""
    try:
        envelope = open_envelope(read_plain(file.path), str(file.path))
        statement = from_payload(envelope.payload, str(file.path))
        tenant = _tenant(statement, envelope, policy)
        state, why, _ = verify_signatures(envelope, policy, signing_role(statement), tenant, statement.at)
    except (DataError, OSError) as error:
        return str(error)
    return "" if state == "attested" else why


def _tenant(statement: Statement, envelope: Envelope, policy: TrustPolicy) -> str:
    """The tenant that a statement names; where it names none, one for whom its key may sign."""
    keys = (policy.keys[signature.key] for signature in envelope.signatures if signature.key in policy.keys)
    allowed = next((tenant for key in keys for tenant in key.tenants), "")
    return _config_text(statement, "name").partition("/")[0] or _config_text(statement, "tenant_id") or allowed


def _config_text(statement: Statement, name: str) -> str:
    return str(statement.config.get(name, "")) if isinstance(statement.config, dict) else ""


def _pointers(store: str, policy: TrustPolicy) -> dict[str, list[str]]:
    """The store's names by the digest that a trusted entry points them to; empty without a store."""
    from qinglan.store import open_store

    if not store or ("://" not in store and not Path(store).is_dir()):
        return {}
    opened = open_store(store)
    pointers: dict[str, list[str]] = {}
    for name in opened.names():
        try:
            if (history := opened.name(name)) and not entry_fault(history, policy, datetime.now(UTC)):
                pointers.setdefault(history.digest, []).append(name)
        except QinglanError:
            continue
    return pointers
