"""What was made from a digest, read from the statements below folders.

    found = which_models(digest, [Path("runs")], policy, store="runs/store")

Each statement is read anew, some thousands in a second. Nothing is believed for being found: each descendant says
whether its statement's signature counts.
"""

import hashlib
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from qinglan.errors import DataError, QinglanError
from qinglan.lineage.dsse import ENVELOPE_SUFFIX, Envelope, open_envelope
from qinglan.lineage.graph import RELEASE_STAGE
from qinglan.lineage.keys import Role
from qinglan.lineage.statement import ArtifactRef, Statement, from_payload
from qinglan.lineage.statement_index import verify_signatures
from qinglan.lineage.trust import TrustPolicy

SHORT_DIGEST = re.compile(r"[0-9a-f]{8,63}")
SHOWN = 200


class Descendant(NamedTuple):
    """Something that was made from the digest in question, directly or through other steps."""

    what: str
    digest: str
    stage: str
    ended: str
    names: tuple[str, ...]
    """Of a release: the name it was signed for; with (now) where that name points to it in the store."""

    where: str
    fault: str
    """Why its statement's signature does not count; empty where it does."""

    total: int
    """How many descendants there are, shown or not."""


class SignedFile(NamedTuple):
    """What is kept of a statement while the descendants are searched."""

    path: str
    stage: str
    ended: str
    release_name: str
    made: tuple[ArtifactRef, ...]
    used: frozenset[str]


def which_models(
    digest: str, roots: Iterable[Path], policy: TrustPolicy, store: str = "", most: int = SHOWN
) -> list[Descendant]:
    """The descendants of a digest: releases first, then models, then the rest, the newest first."""
    files = read_signed_files(roots, store)
    reached = descend(_whole_digest(digest, files), files)
    made = [(file, part) for file in reached for part in file.made]
    made.sort(key=lambda entry: (entry[1].name, entry[1].digest))
    made.sort(key=lambda entry: entry[0].ended, reverse=True)
    made.sort(key=lambda entry: _rank(entry[0].stage, entry[1].name))
    pointers = _pointers(store)
    return [_descendant(file, part, pointers, policy, len(made)) for file, part in made[:most]]


def read_signed_files(roots: Iterable[Path], store: str = "") -> list[SignedFile]:
    """Every statement below the folders and a store that is one, once, however many copies of it there are."""
    if store and "://" not in store:
        roots = [*roots, Path(store)]
    found: dict[str, SignedFile] = {}
    for path in sorted(statement_paths(root.resolve() for root in roots if root.exists())):
        try:
            sealed = Path(path).read_bytes()
            sha = hashlib.sha256(sealed).hexdigest()
            if sha not in found:
                found[sha] = _signed_file(path, from_payload(open_envelope(sealed, path).payload, path))
        except (DataError, OSError):
            continue  # not a statement, or gone meanwhile: an audit of its folder says so
    return list(found.values())


def statement_paths(roots: Iterable[Path]) -> set[str]:
    """The files that end as statements do; links are not followed."""
    paths: set[str] = set()
    waiting = [str(root) for root in roots]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                elif entry.name.endswith(ENVELOPE_SUFFIX) and entry.is_file(follow_symlinks=False):
                    paths.add(entry.path)
    return paths


def descend(digest: str, files: Sequence[SignedFile]) -> list[SignedFile]:
    """The statements that used the digest, or what was made from it."""
    users: dict[str, list[int]] = defaultdict(list)
    for number, file in enumerate(files):
        for used in file.used:
            users[used].append(number)
    reached: set[int] = set()
    waiting = list(users[digest])
    while waiting:
        number = waiting.pop()
        if number not in reached:
            reached.add(number)
            waiting.extend(user for part in files[number].made for user in users.get(part.digest, ()))
    return [files[number] for number in sorted(reached)]


def _signed_file(path: str, statement: Statement) -> SignedFile:
    """A file inside a folder that was made is no descendant of its own; neither is what a step only carried on."""
    used = frozenset(part.digest for part in statement.used)
    carries_on = statement.stage == RELEASE_STAGE
    made = tuple(part for part in statement.made if "/" not in part.name and (carries_on or part.digest not in used))
    return SignedFile(path, statement.stage, statement.ended, _release_name(statement), made, used)


def _release_name(statement: Statement) -> str:
    if statement.stage != RELEASE_STAGE or not isinstance(statement.config, dict):
        return ""
    return str(statement.config.get("name", ""))


def _whole_digest(digest: str, files: Iterable[SignedFile]) -> str:
    """The digest of which the first characters are given."""
    if not SHORT_DIGEST.fullmatch(digest):
        return digest
    known = _all_digests(files)
    matches = {candidate for candidate in known if candidate.startswith(digest)}
    if len(matches) > 1:
        raise DataError(f"{digest}: more than one digest begins so. Give more of it.")
    return matches.pop() if matches else digest


def _all_digests(files: Iterable[SignedFile]) -> Iterator[str]:
    for file in files:
        yield from file.used
        yield from (part.digest for part in file.made)


def _descendant(
    file: SignedFile, part: ArtifactRef, pointers: dict[str, list[str]], policy: TrustPolicy, total: int
) -> Descendant:
    released = file.stage == RELEASE_STAGE
    release = Path(file.path).parent.name if released else ""  # a store keeps it under its digest
    names = [f"{name} (now)" for name in pointers.get(release, ())]
    if not names and file.release_name:
        names = [file.release_name]
    what = f"release, {part.name}" if released else part.name
    fault = _signature_fault(file.path, policy)
    return Descendant(what, part.digest, file.stage, file.ended, tuple(names), file.path, fault, total)


def _rank(stage: str, name: str) -> int:
    """What people look for first: a release's model, a model, anything else, a release's other files."""
    if stage == RELEASE_STAGE:
        return 0 if name == "model" else 3
    return 1 if "model" in name else 2


def _signature_fault(path: str, policy: TrustPolicy) -> str:
    """Why the signature does not count; empty where it does."""
    try:
        envelope = open_envelope(Path(path).read_bytes(), path)
        statement = from_payload(envelope.payload, path)
        role: Role = "releaser" if statement.stage == RELEASE_STAGE else "builder"
        state, why, _ = verify_signatures(envelope, policy, role, _tenant(statement, envelope, policy), statement.at)
    except (DataError, OSError) as error:
        return str(error)
    return "" if state == "attested" else why


def _tenant(statement: Statement, envelope: Envelope, policy: TrustPolicy) -> str:
    """The tenant that a statement names; where it names none, one for whom its key may sign."""
    config = statement.config if isinstance(statement.config, dict) else {}
    keys = (policy.keys[signature.key] for signature in envelope.signatures if signature.key in policy.keys)
    allowed = next((tenant for key in keys for tenant in key.tenants), "")
    return str(config.get("name", "")).partition("/")[0] or str(config.get("tenant_id", "")) or allowed


def _pointers(store: str) -> dict[str, list[str]]:
    """The store's names by the digest that they point to; empty where no store can be asked."""
    from qinglan.store import open_store

    if not store or ("://" not in store and not Path(store).is_dir()):
        return {}
    opened = open_store(store)
    pointers: dict[str, list[str]] = {}
    for name in opened.names():
        try:
            if entry := opened.name(name):
                pointers.setdefault(str(entry.digest), []).append(name)
        except QinglanError:
            continue
    return pointers
