"""Trust policy: which key may sign what, for which tenants and times; and functions to make, rotate and revoke keys.

keys:
  9f2c...:                       id: SHA-256 of the public key
    role: builder                builder (signs stages), releaser (signs releases) or rollout (signs outcomes)
    tenants: [fivedoctors]       or ["*"]
    since: 2026-11-22T08:00:00Z
    until: 2027-01-10T09:30:00Z  time of rotation: signatures with an earlier date stay trusted
    revoked: {at: 2026-12-24T00:00:00Z, reason: laptop lost}    signatures from this time on are not trusted
    public: |
      -----BEGIN PUBLIC KEY-----
clean_code: true               optional: a model that code with uncommitted changes made is not deployed
evaluate:                      optional: limits on evaluations and gates, each stricter than the project's own
  rewriter: {draws: 10000, gate: {rows: 400, p: 0.01, by: gold}}
  counted: true                promote and deploy only models whose locked test counts the models that it judged

new_key(folder, "builder")     makes a private key in the folder and adds it to the policy there
rotate_key(folder, "releaser")
"""

import fcntl
import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import yaml
from pydantic import AfterValidator, Field, model_validator

from qinglan.config import Config, load_yaml, yaml_mapping
from qinglan.errors import ConfigError
from qinglan.evaluation.gates.gate_limits import Limits
from qinglan.files.files import atomic_write
from qinglan.lineage.signing.dsse import Envelope, verify_signature
from qinglan.lineage.signing.findings import State
from qinglan.lineage.signing.keys import (
    ROLES,
    PublicKey,
    Role,
    has_low_s,
    keys_folder,
    load_signer,
    make_key,
    parse_public_key,
)

TRUST_FILE = "trust.yaml"
TRUST_VARIABLE = "QINGLAN_TRUST"
"""Environment variable with the policy as YAML text, because KServe's storage container cannot mount volumes."""

EVERYONE = "*"


class KeyRotation(NamedTuple):
    """Result of `rotate_key`: ids of the replaced key and of its replacement."""

    old: str
    new: str
    until: datetime
    """Latest date of a signature by the old key that is still trusted."""

    clock_behind: timedelta
    """Time by which the policy's newest date is ahead of this machine's clock; zero if it is not ahead."""


LOW_S_SINCE = datetime(2026, 12, 1, tzinfo=UTC)
"""Date from which only signatures with the smaller s count (`has_low_s`). Many older signatures have the larger s."""


def _utc(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        raise ValueError("a time without a zone: end it with Z for UTC")
    try:
        return moment.astimezone(UTC)
    except OverflowError as error:
        raise ValueError("a time at the edge of the calendar, which UTC does not have") from error


UtcTime = Annotated[datetime, AfterValidator(_utc)]


class Revocation(Config):
    at: UtcTime
    """Time from which the key's signatures do not count. Choose it early, because a thief can backdate signatures."""

    reason: str = Field(min_length=1)
    """Reason for the revocation, shown in every audit."""


class TrustedKey(Config):
    role: Role
    """Kind of statements that the key may sign."""

    tenants: tuple[str, ...] = (EVERYONE,)
    """Tenants for which the key may sign; "*" means all tenants."""

    since: UtcTime
    """Time at which the key was made; a signature with an earlier date is not trusted."""

    until: UtcTime | None = None
    """Time at which the key was rotated out."""

    revoked: Revocation | None = None
    """Revocation of the key, if it is no longer trusted."""

    public: str
    """Public key in PEM."""

    @cached_property
    def key(self) -> PublicKey:
        return parse_public_key(self.public)


class TrustPolicy(Config):
    """Trust policy of an auditor and the deploy gate. Keep its file where the signers cannot write."""

    keys: dict[str, TrustedKey] = {}
    """Keys by id."""

    clean_code: bool = False
    """Refusal to deploy a model if code with uncommitted changes made any of its artifacts."""

    evaluate: Limits = Limits()
    """Limits on the settings of evaluations and gates, by model line (qinglan/evaluation/gates/gate_limits.py)."""

    @model_validator(mode="after")
    def _named_by_content(self) -> "TrustPolicy":
        for name, trusted in self.keys.items():
            try:
                key_id = trusted.key.id
            except ConfigError as error:
                raise ValueError(f"keys.{name}.public: {error}") from error
            if key_id != name:
                raise ValueError(f"keys.{name}: this key's id is {key_id}")
        return self

    def fault(self, key: str, role: Role, tenant: str, at: datetime) -> str:
        """Return why a key's signature does not count for a role, a tenant and a time; empty if it does."""
        trusted = self.keys.get(key)
        if trusted is None:
            return f"key {key[:12]} is not in the trust policy"
        if trusted.role != role:
            return f"key {key[:12]} is a {trusted.role}'s, and a {role}'s is needed"
        if EVERYONE not in trusted.tenants and tenant not in trusted.tenants:
            return f"key {key[:12]} may not sign for {tenant}"
        if at < trusted.since:
            return f"key {key[:12]} did not exist at {at:%F %T}Z"
        if trusted.revoked and at >= trusted.revoked.at:
            return f"key {key[:12]} was revoked at {trusted.revoked.at:%F %T}Z: {trusted.revoked.reason}"
        if trusted.until and at > trusted.until:
            return f"key {key[:12]} was rotated out at {trusted.until:%F %T}Z"
        return ""

    def check_signatures(self, envelope: Envelope, role: Role, tenant: str, at: datetime) -> tuple[State, str, str]:
        """Verify an envelope's signatures. Returns its state, the reason, and the id of the trusted key that signed.

        One valid signature of a trusted key is enough for `attested`. Without one, the state is `altered` if a
        trusted key's signature does not match the bytes, else `untrusted`.
        """
        state: State = "untrusted"
        faults = []
        for signature in envelope.signatures:
            if fault := self.fault(signature.key, role, tenant, at):
                faults.append(fault)
            elif at >= LOW_S_SINCE and not has_low_s(signature.value):
                state = "altered"
                faults.append(f"the signature of key {signature.key[:12]} was rewritten, without its key (high s)")
            # One trusted signature is enough: others may be of keys that were lost or that this policy does not know.
            elif verify_signature(envelope, signature, self.keys[signature.key].key):
                return "attested", "", signature.key
            else:
                state = "altered"
                faults.append(f"the signature is not key {signature.key[:12]}'s over these bytes")
        return state, "; ".join(faults) or "it is not signed", ""


def load_trust(path: Path) -> TrustPolicy:
    if not path.is_file():
        raise ConfigError(
            f"{path}: no trust policy. `qinglan keys new` writes one beside the keys; an auditor names the "
            "organisation's with --trust."
        )
    return TrustPolicy.parse(load_yaml(path), str(path))


def default_trust(environment: Mapping[str, str] = os.environ) -> TrustPolicy:
    """Load the policy from the variable QINGLAN_TRUST or, if it is empty, from trust.yaml in the folder of keys."""
    text = environment.get(TRUST_VARIABLE, "")
    if not text.strip():
        return load_trust(keys_folder() / TRUST_FILE)
    return TrustPolicy.parse(yaml_mapping(text, TRUST_VARIABLE), TRUST_VARIABLE)


def policy_at_hand() -> TrustPolicy | None:
    """Load the policy like `default_trust`; returns None if there is none, since a pod may have only keys."""
    if not os.environ.get(TRUST_VARIABLE, "").strip() and not (keys_folder() / TRUST_FILE).is_file():
        return None
    return default_trust()


def save_trust(path: Path, policy: TrustPolicy) -> None:
    values: dict[str, Any] = policy.model_dump(mode="json", exclude_none=True, exclude={"evaluate"})
    if limits := policy.evaluate.changes():
        values["evaluate"] = limits
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as partial:
        partial.write_text(yaml.safe_dump(values, sort_keys=False, allow_unicode=True), encoding="utf-8")


def ensure_keys(folder: Path) -> bool:
    """Make a key for each role if the folder has no key and no policy; returns True if keys were made.

    A folder with some keys is left as it is, because its other keys are missing on purpose.
    """
    if has_keys(folder):
        return False
    for role in ROLES:
        new_key(folder, role)
    return True


def has_keys(folder: Path) -> bool:
    return any((folder / f"{role}.pem").exists() for role in ROLES) or (folder / TRUST_FILE).exists()


def new_key(folder: Path, role: Role, tenants: tuple[str, ...] = (EVERYONE,)) -> str:
    """Make a key for the role and add it to the trust policy; returns the key's id."""
    path = folder / f"{role}.pem"
    if os.path.lexists(path):
        raise ConfigError(f"{path}: a key exists already. `qinglan keys rotate {role}` replaces it.")
    policy, now = _policy(folder), _now()
    trusted = TrustedKey(role=role, tenants=tenants, since=now, public=make_key(path))
    save_trust(folder / TRUST_FILE, _with_key(policy, trusted.key.id, trusted))
    return trusted.key.id


def rotate_key(folder: Path, role: Role) -> KeyRotation:
    """Replace a role's key. The old private key is deleted, so that it can sign nothing more.

    The old key's `until` is never before its `since`, even if the clock was set back, because otherwise none of its
    signatures would be trusted. The new key's `since` is the present time, even if the old key is dated in the
    future, because otherwise the new key could sign only with dates in the future.
    """
    load_signer(role, folder)  # an error if there is no key to replace
    # Two commands at once would delete each other's new key.
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        return _rotate(folder, role)
    finally:
        os.close(handle)


def _rotate(folder: Path, role: Role) -> KeyRotation:
    old, policy = load_signer(role, folder), _policy(folder)
    if old.id not in policy.keys:
        raise ConfigError(
            f"{folder / TRUST_FILE}: does not know {old.path}, key {old.id[:12]}. Name it there, or delete it "
            "and make a new one."
        )
    now = _now()
    newest = max(date for key in policy.keys.values() for date in (key.since, key.until or key.since))
    until = max(now, policy.keys[old.id].since)
    ended = policy.keys[old.id].model_copy(update={"until": until})
    fresh = folder / f".{role}.new.pem"
    fresh.unlink(missing_ok=True)  # left by a command that was killed
    trusted = TrustedKey(role=role, tenants=ended.tenants, since=now, public=make_key(fresh))
    save_trust(folder / TRUST_FILE, _with_key(_with_key(policy, old.id, ended), trusted.key.id, trusted))
    fresh.replace(old.path)
    return KeyRotation(old.id, trusted.key.id, until, newest - now if newest > now else timedelta())


def revoke_key(folder: Path, key: str, reason: str, at: str = "") -> tuple[str, str]:
    """Revoke the key whose id begins with `key`; returns its id and the time from which it is not trusted."""
    policy = load_trust(folder / TRUST_FILE)
    matches = [key_id for key_id in policy.keys if key and key_id.startswith(key)]
    if len(matches) != 1:
        raise ConfigError(
            f"{folder / TRUST_FILE}: {len(matches)} keys begin with {key!r}. `qinglan keys list` shows them."
        )
    [key_id] = matches
    revoked = Revocation.parse({"at": at or _now(), "reason": reason}, "--at, --reason")
    if (before := policy.keys[key_id].revoked) and before.at <= revoked.at:
        raise ConfigError(
            f"key {key_id[:12]} is revoked from {before.at:%FT%TZ} on already ({before.reason}). A later "
            "time would make signatures count again; an earlier time can be given by --at."
        )
    changed = policy.keys[key_id].model_copy(update={"revoked": revoked})
    save_trust(folder / TRUST_FILE, _with_key(policy, key_id, changed))
    return key_id, f"{revoked.at:%FT%TZ}"


def key_rows(policy: TrustPolicy, folder: Path) -> Iterator[tuple[str, ...]]:
    private = {load_signer(role, folder).id for role in ROLES if (folder / f"{role}.pem").is_file()}
    for key_id, key in policy.keys.items():
        notes = [f"revoked {key.revoked.at:%F %T}Z: {key.revoked.reason}"] if key.revoked else []
        notes += ["private key here"] if key_id in private else []
        until = f"{key.until:%F %T}Z" if key.until else ""
        yield key_id[:12], key.role, ", ".join(key.tenants), f"{key.since:%F %T}Z", until, "; ".join(notes)


def _policy(folder: Path) -> TrustPolicy:
    return load_trust(folder / TRUST_FILE) if (folder / TRUST_FILE).exists() else TrustPolicy()


def _with_key(policy: TrustPolicy, key: str, trusted: TrustedKey) -> TrustPolicy:
    return policy.model_copy(update={"keys": {**policy.keys, key: trusted}})


def _now() -> datetime:
    """Return the time in whole milliseconds, like the times in statements, so that no signature predates its key."""
    now = datetime.now(UTC)
    return now.replace(microsecond=now.microsecond // 1000 * 1000)
