"""Find what was made from a digest, according to the statements below some folders.

    descendants = which_models(digest, [Path("runs")], policy, store="runs/store")

Each call reads all statement files, a few thousand per second. Statements may be forged, so each descendant says if
its statement's signature is trusted.
"""

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from qinglan.errors import DataError, QinglanError
from qinglan.lineage.signing.dsse import ENVELOPE_SUFFIX
from qinglan.lineage.signing.signed_statement import SignedStatement, read_signed_statement, verify_statement
from qinglan.lineage.signing.statement import RELEASE_STAGE, ArtifactRef
from qinglan.lineage.signing.trust import TrustPolicy
from qinglan.lineage.trace.name_moves import entry_fault
from qinglan.store import open_store

DIGEST = re.compile(r"[0-9a-f]{8,64}")
MAX_SHOWN = 200


class Descendant(NamedTuple):
    """An artifact that was made from the digest in question, directly or through other steps."""

    what: str
    digest: str
    stage: str
    ended: str
    names: tuple[str, ...]
    """Names in the store that point to a release, each with `(now)`; if there are none, the name in its statement."""

    where: str
    fault: str
    """Reason why its statement's signature is not trusted; empty if it is trusted."""

    total: int
    """Number of all descendants, including those that are not shown."""


def which_models(
    digest: str, roots: Iterable[Path], policy: TrustPolicy, store: str = "", most: int = MAX_SHOWN
) -> list[Descendant]:
    """List up to `most` descendants of a digest: released models, other models, then the rest; newest first."""
    steps = read_steps([*roots, Path(store)] if store and "://" not in store else roots)
    outputs = [(step, part) for step in _descend(_whole_digest(digest, steps), steps) for part in _outputs(step)]
    outputs.sort(key=lambda output: (output[1].name, output[1].digest))
    outputs.sort(key=lambda output: output[0].statement.ended, reverse=True)
    outputs.sort(key=lambda output: _rank(output[0], output[1].name))
    pointers = _pointers(store, policy)
    descendants = []
    for step, part in outputs[:most]:
        statement, what = step.statement, part.name
        names: tuple[str, ...] = ()
        if _is_release(step):
            what = f"release, {part.name}"
            name = str(statement.config.get("name", ""))
            # A release's folder in the store is named by its digest.
            names = tuple(pointers.get(Path(step.where).parent.name, [name] if name else []))
        fault = _signature_fault(step, policy)
        descendants.append(
            Descendant(what, part.digest, statement.stage, statement.ended, names, step.where, fault, len(outputs))
        )
    return descendants


def read_steps(roots: Iterable[Path]) -> list[SignedStatement]:
    """Read every statement below the folders. Links are not followed, and copies of a statement count once."""
    folders = ((Path(folder), names) for root in roots for folder, _, names in os.walk(root.resolve()))
    paths = {folder / name for folder, names in folders for name in names if name.endswith(ENVELOPE_SUFFIX)}
    steps: dict[str, SignedStatement] = {}
    for path in sorted(path for path in paths if path.is_file() and not path.is_symlink()):
        try:
            step = read_signed_statement(path)
        except (DataError, OSError):
            continue  # not a statement, or deleted meanwhile; an audit of its folder reports it
        steps.setdefault(step.digest, step)
    return list(steps.values())


def _is_release(step: SignedStatement) -> bool:
    return step.statement.stage == RELEASE_STAGE


def _outputs(step: SignedStatement) -> list[ArtifactRef]:
    """Return a step's outputs, without files inside folders. Inputs that it passed on count only for a release."""
    used = {part.digest for part in step.statement.used}
    outputs = (part for part in step.statement.made if "/" not in part.name)
    return [part for part in outputs if _is_release(step) or part.digest not in used]


def _descend(digest: str, steps: Sequence[SignedStatement]) -> list[SignedStatement]:
    """Return the steps that used the artifact with this digest, or an artifact that was made from it."""
    users: dict[str, list[int]] = defaultdict(list)
    for number, step in enumerate(steps):
        for used in {part.digest for part in step.statement.used}:
            users[used].append(number)
    reached: set[int] = set()
    queue = list(users[digest])
    while queue:
        number = queue.pop()
        if number not in reached:
            reached.add(number)
            queue.extend(user for part in _outputs(steps[number]) for user in users.get(part.digest, ()))
    return [steps[number] for number in sorted(reached)]


def _whole_digest(digest: str, steps: Iterable[SignedStatement]) -> str:
    """Complete a shortened digest to the only digest in `steps` that begins with it; unchanged if there is none."""
    if not DIGEST.fullmatch(digest):
        raise DataError(f"{digest}: no file here, and no digest: those have 8 to 64 characters of 0-9 and a-f.")
    parts = (part for step in steps for part in (*step.statement.used, *_outputs(step)))
    matches = {part.digest for part in parts if part.digest.startswith(digest)}
    if len(matches) > 1:
        raise DataError(f"{digest}: more than one digest begins with this. Give more of it.")
    return matches.pop() if matches else digest


def _rank(step: SignedStatement, name: str) -> int:
    """Sort order: a release's model, then other models, then other artifacts, then a release's other files."""
    if _is_release(step):
        return 0 if name == "model" else 3
    return 1 if "model" in name else 2


def _signature_fault(step: SignedStatement, policy: TrustPolicy) -> str:
    """Return why a statement's signature is not trusted; empty if it is trusted.

    The signature is checked for the tenant that the statement names or, if it names none, for a tenant of the key.
    """
    keys = (policy.keys[signature.key] for signature in step.envelope.signatures if signature.key in policy.keys)
    allowed = next((tenant for key in keys for tenant in key.tenants), "")
    named = str(step.statement.config.get("name", "")).partition("/")[0]
    state, why, _ = verify_statement(step, policy, named or step.statement.tenant or allowed)
    return "" if state == "attested" else why


def _pointers(store: str, policy: TrustPolicy) -> dict[str, list[str]]:
    """Return the store's names by the digest to which they point. Names without a trusted entry are left out."""
    if not store or ("://" not in store and not Path(store).is_dir()):
        return {}
    opened = open_store(store)
    pointers: dict[str, list[str]] = {}
    for name in opened.names():
        try:
            if (history := opened.name(name)) and not entry_fault(history, policy, datetime.now(UTC)):
                pointers.setdefault(history.digest, []).append(f"{name} (now)")
        except QinglanError:
            continue
    return pointers
