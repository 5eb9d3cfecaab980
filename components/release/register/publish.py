"""Push a release to the store under its digest, then point the release's name to it. Another release that took the
name meanwhile is never overwritten."""

from pathlib import Path

from components.release.register.config import RegisterConfig
from qinglan.errors import AlteredError
from qinglan.lineage.signing.keys import Signer
from qinglan.lineage.signing.trust import policy_at_hand
from qinglan.lineage.trace.name_moves import foreign_entry_fault, sign_with


def current_digest(config: RegisterConfig) -> str | None:
    """Return the digest to which the name points; None for a new name, or without a store.

    Raises an AlteredError if no register stage of this project can have written the name's current entry, since the
    signature of the next entry would cover it.
    """
    from qinglan.store import open_store

    if not config.store:
        return None
    store = open_store(config.store).prepare()
    if (named := store.name(config.name)) is None:
        return None
    if fault := foreign_entry_fault(named, policy_at_hand()):
        raise AlteredError(
            f"{store.address}: {config.name}: {fault}. Somebody else writes to this store: find out who, remove that "
            "entry's file, and run again."
        )
    return named.digest


def publish(folder: Path, digest: str, config: RegisterConfig, before: str | None, signer: Signer) -> None:
    """Push the release and point its name to it, if a store is set. Raises a ConflictError if the name no longer
    points to `before`."""
    from qinglan.store import open_store

    if not config.store:
        return
    store = open_store(config.store)
    store.push(folder, digest)
    store.point(config.name, digest, before, signer.id, sign_with(signer))
