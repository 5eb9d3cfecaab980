"""A release into the store: kept by its digest, then named, if the name still points to what it did before."""

from pathlib import Path

from components.release.register.config import RegisterConfig


def current_digest(config: RegisterConfig) -> str | None:
    """The digest that the name points to now; None where it is new, or no store is wanted."""
    from qinglan.store import open_store

    named = open_store(config.store).prepare().name(config.name) if config.store else None
    return None if named is None else named.digest


def publish(folder: Path, digest: str, config: RegisterConfig, before: str | None, by: str) -> None:
    """Nothing without a store. A Conflict where someone else has moved the name since `before`: run again then."""
    from qinglan.store import open_store

    if not config.store:
        return
    store = open_store(config.store)
    store.push(folder, digest)
    store.point(config.name, digest, before, by)
