"""Keys through their lives: made, rotated, revoked; the trust policy beside them says so with dates.

new_key(folder, "builder")
rotate_key(folder, "releaser")
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from qinglan.errors import ConfigError
from qinglan.lineage.keys import ROLES, Role, load_signer, make_key, parse_public_key
from qinglan.lineage.trust import EVERYONE, TRUST_FILE, Revocation, TrustedKey, TrustPolicy, load_trust, save_trust


def ensure_keys(folder: Path) -> bool:
    """Make a key for each role where there are none at all; True if it did.

    Somebody who tries this out has no keys. Where one is there, the others are missing for a reason.
    """
    if any((folder / f"{role}.pem").exists() for role in ROLES) or (folder / TRUST_FILE).exists():
        return False
    for role in ROLES:
        new_key(folder, role)
    return True


def new_key(folder: Path, role: Role, tenants: tuple[str, ...] = (EVERYONE,)) -> str:
    """A new key for the role, named in the trust policy; the answer is its id."""
    path = folder / f"{role}.pem"
    if path.exists():
        raise ConfigError(f"{path}: there is a key. `qinglan keys rotate {role}` replaces it.")
    return _add(folder, role, tenants, _now(), _policy(folder))


def rotate_key(folder: Path, role: Role) -> tuple[str, str]:
    """The old key's id and the new one's; the old private key is deleted, for it must sign nothing more."""
    old = load_signer(role, folder)
    policy = _policy(folder)
    if old.id not in policy.keys:
        raise ConfigError(
            f"{folder / TRUST_FILE}: does not know {old.path}, key {old.id[:12]}. Name it there, or delete it "
            "and make a "
            "new one."
        )
    now = _now()
    kept = policy.keys[old.id]
    ended = policy.model_copy(update={"keys": {**policy.keys, old.id: kept.model_copy(update={"until": now})}})
    fresh = folder / f".{role}.new.pem"
    fresh.unlink(missing_ok=True)
    made = _named(ended, make_key(fresh), role, kept.tenants, now)
    save_trust(folder / TRUST_FILE, made[1])
    fresh.replace(old.path)
    return old.id, made[0]


def revoke_key(folder: Path, key: str, reason: str, at: str = "") -> tuple[str, str]:
    """The key's id and from when on it counts no more."""
    policy = load_trust(folder / TRUST_FILE)
    found = [one for one in policy.keys if key and one.startswith(key)]
    if len(found) != 1:
        raise ConfigError(
            f"{folder / TRUST_FILE}: {len(found)} keys begin with {key!r}. `qinglan keys list` shows them."
        )
    revoked = Revocation.parse({"at": at or _now(), "reason": reason}, "--at, --reason")
    if (before := policy.keys[found[0]].revoked) and before.at <= revoked.at:
        raise ConfigError(
            f"key {found[0][:12]} is revoked from {before.at:%FT%TZ} on already ({before.reason}). A later "
            "time would make signatures count again; an earlier one can be given by --at."
        )
    changed = policy.keys[found[0]].model_copy(update={"revoked": revoked})
    save_trust(folder / TRUST_FILE, policy.model_copy(update={"keys": {**policy.keys, found[0]: changed}}))
    return found[0], f"{revoked.at:%FT%TZ}"


def key_rows(policy: TrustPolicy, folder: Path) -> Iterator[tuple[str, ...]]:
    """A line for each key, as people read it."""
    here = {load_signer(role, folder).id for role in ROLES if (folder / f"{role}.pem").is_file()}
    for name, one in policy.keys.items():
        said = f"revoked {one.revoked.at:%F %T}Z: {one.revoked.reason}" if one.revoked else ""
        until = f"{one.until:%F %T}Z" if one.until else ""
        private = "private key here" if name in here else ""
        yield (
            name[:12], one.role, ", ".join(one.tenants), f"{one.since:%F %T}Z", until,
            "; ".join(filter(None, (said, private))),
        )  # fmt: skip


def _policy(folder: Path) -> TrustPolicy:
    return load_trust(folder / TRUST_FILE) if (folder / TRUST_FILE).exists() else TrustPolicy()


def _add(folder: Path, role: Role, tenants: tuple[str, ...], now: datetime, policy: TrustPolicy) -> str:
    made, changed = _named(policy, make_key(folder / f"{role}.pem"), role, tenants, now)
    save_trust(folder / TRUST_FILE, changed)
    return made


def _named(
    policy: TrustPolicy, public: str, role: Role, tenants: tuple[str, ...], now: datetime
) -> tuple[str, TrustPolicy]:
    made = parse_public_key(public).id
    trusted = TrustedKey(role=role, tenants=tenants, since=now, public=public)
    return made, policy.model_copy(update={"keys": {**policy.keys, made: trusted}})


def _now() -> datetime:
    """To the millisecond, as statements have it: a key is not younger than what it signs at once."""
    now = datetime.now(UTC)
    return now.replace(microsecond=now.microsecond // 1000 * 1000)
