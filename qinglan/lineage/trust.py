"""Whose signature counts: which key may sign what, for which tenants, from when to when.

keys:
  9f2c...:                       id: SHA-256 of the public key
    role: builder                builder: what stages make; releaser: what may serve; rollout: how that ended
    tenants: [fivedoctors]       or ["*"]
    since: 2026-11-22T08:00:00Z
    until: 2027-01-10T09:30:00Z  rotated: what it signed before counts as of its time
    revoked: {at: 2026-12-24T00:00:00Z, reason: laptop lost}    what it signed from then on counts no more
    public: |
      -----BEGIN PUBLIC KEY-----
clean_code: true               optional: nothing is deployed that was made by code which no commit has
"""

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, model_validator

from qinglan.config import Config, load_yaml
from qinglan.errors import ConfigError
from qinglan.files import atomic_write
from qinglan.lineage.dsse import Envelope, verify_signature
from qinglan.lineage.findings import State
from qinglan.lineage.keys import PublicKey, Role, keys_folder, parse_public_key

TRUST_FILE = "trust.yaml"
TRUST_VARIABLE = "QINGLAN_TRUST"
"""The policy itself, in YAML, for pods: a storage container of KServe has an environment, and no volumes."""

EVERYONE = "*"


def _utc(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        raise ValueError("a time without a zone: end it with Z for UTC")
    return moment.astimezone(UTC)


UtcTime = Annotated[datetime, AfterValidator(_utc)]


class Revocation(Config):
    at: UtcTime
    """From then on its signatures count no more. Whoever took the key can name an earlier time: choose it early."""

    reason: str = Field(min_length=1)
    """Shown in every audit."""


class TrustedKey(Config):
    role: Role
    """What it may sign."""

    tenants: tuple[str, ...] = (EVERYONE,)
    """For whom."""

    since: UtcTime
    """Nothing is older than the key that signed it."""

    until: UtcTime | None = None
    """The day it was rotated out."""

    revoked: Revocation | None = None
    """Where it can be trusted no more."""

    public: str
    """The key in PEM."""

    @cached_property
    def key(self) -> PublicKey:
        return parse_public_key(self.public)


class TrustPolicy(Config):
    """The file that an auditor and the deploy gate go by; keep it where those who sign can't write."""

    keys: dict[str, TrustedKey] = {}
    """By id."""

    clean_code: bool = False
    """Deploy nothing that was made by code which no commit has."""

    @model_validator(mode="after")
    def _named_by_content(self) -> "TrustPolicy":
        for name, one in self.keys.items():
            try:
                found = one.key.id
            except ConfigError as error:
                raise ValueError(f"keys.{name}.public: {error}") from error
            if found != name:
                raise ValueError(f"keys.{name}: this key's id is {found}")
        return self

    def fault(self, key: str, role: Role, tenant: str, at: datetime) -> str:
        """Why a signature of this key does not count; "" where it does."""
        trusted = self.keys.get(key)
        if trusted is None:
            return f"key {key[:12]} is not in the trust policy"
        if trusted.role != role:
            return f"key {key[:12]} is a {trusted.role}'s, and this takes a {role}'s"
        if EVERYONE not in trusted.tenants and tenant not in trusted.tenants:
            return f"key {key[:12]} may not sign for {tenant}"
        if at < trusted.since:
            return f"key {key[:12]} did not exist at {at:%F %T}Z"
        if trusted.revoked and at >= trusted.revoked.at:
            return f"key {key[:12]} was revoked at {trusted.revoked.at:%F %T}Z: {trusted.revoked.reason}"
        if trusted.until and at > trusted.until:
            return f"key {key[:12]} was rotated out at {trusted.until:%F %T}Z"
        return ""

    def signed(self, envelope: Envelope, role: Role, tenant: str, at: datetime) -> tuple[str, str]:
        """The key whose signature counts, and "" ; or "" and why none of them does."""
        _, why, key = self.worth(envelope, role, tenant, at)
        return key, why

    def worth(self, envelope: Envelope, role: Role, tenant: str, at: datetime) -> tuple[State, str, str]:
        """What the signatures are worth, why, and whose counts; a signature of a key that counts over other bytes
        means that somebody changed them.
        """
        state: State = "untrusted"
        faults = []
        for signature in envelope.signatures:
            if fault := self.fault(signature.key, role, tenant, at):
                faults.append(fault)
            elif verify_signature(envelope, signature, self.keys[signature.key].key):
                return "attested", "", signature.key
            else:
                state = "altered"
                faults.append(f"the signature is not key {signature.key[:12]}'s over these bytes")
        return state, "; ".join(faults) or "it is not signed", ""


def load_trust(path: Path) -> TrustPolicy:
    """A policy; a ConfigError that says what is wrong with it."""
    if not path.is_file():
        raise ConfigError(
            f"{path}: no trust policy. `qinglan keys new` writes one beside the keys; an auditor takes the house's, "
            "by --trust."
        )
    return TrustPolicy.parse(load_yaml(path), str(path))


def default_trust(environment: Mapping[str, str] = os.environ) -> TrustPolicy:
    """The policy that this process was given: by its environment, else beside its keys."""
    import yaml

    text = environment.get(TRUST_VARIABLE, "")
    if not text.strip():
        return load_trust(keys_folder() / TRUST_FILE)
    try:
        return TrustPolicy.parse(yaml.safe_load(text), TRUST_VARIABLE)
    except yaml.YAMLError as error:
        raise ConfigError(f"{TRUST_VARIABLE}: not readable as YAML: {error}") from error


def save_trust(path: Path, policy: TrustPolicy) -> None:
    import yaml

    values: dict[str, Any] = policy.model_dump(mode="json", exclude_none=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as partial:
        partial.write_text(yaml.safe_dump(values, sort_keys=False, allow_unicode=True), encoding="utf-8")
