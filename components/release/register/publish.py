"""A release into the store: kept by its digest, then named, if the name still points to what it did before."""

from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from components.release.register.config import RegisterConfig


class Store(Protocol):
    """What we ask of it."""

    def push(self, folder: Path, digest: str) -> str: ...
    def name(self, name: str) -> Any: ...
    def point(self, name: str, digest: str, expected: str | None, by: str) -> object: ...


def current(config: RegisterConfig) -> str | None:
    """What the name points to now; None where it is new, or there is no store."""
    named = _open(config).name(config.name) if config.store else None
    return None if named is None else str(named.digest)


def publish(folder: Path, digest: str, config: RegisterConfig, before: str | None, by: str) -> None:
    """Nothing without a store. Where someone else has moved the name since `before`, the store's error says so."""
    if not config.store:
        return
    store = _open(config)
    store.push(folder, digest)
    store.point(config.name, digest, before, by)


def _open(config: RegisterConfig) -> Store:
    store: Store = import_module("qinglan.store").open_store(config.store)
    return store
