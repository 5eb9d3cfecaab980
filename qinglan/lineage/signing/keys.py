"""EC keys (P-256) of three roles.

A builder's key signs the work of stages, a releaser's key signs releases, a rollout's key the outcome of a rollout.

    keys/builder.pem  releaser.pem  rollout.pem    private, from a file or a mounted Kubernetes Secret
    keys/trust.yaml                        public: which key may sign what; see trust.py

signer = load_signer("builder")
"""

import hashlib
import os
from pathlib import Path
from typing import Literal, NamedTuple

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from qinglan.errors import ConfigError
from qinglan.files.plain_files import read_plain

Role = Literal["builder", "releaser", "rollout"]
ROLES: tuple[Role, ...] = ("builder", "releaser", "rollout")
KEYS_VARIABLE = "QINGLAN_KEYS"
"""Environment variable that names the folder of keys; if it is empty, `keys_folder` chooses a default folder."""

CURVE_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
"""The order n of P-256 (SEC 2, secp256r1)."""

MOUNTED_KEYS = Path("/etc/qinglan/keys")
"""Folder at which a pod mounts its Secret with the keys that its step needs."""


class PublicKey(NamedTuple):
    id: str
    """SHA-256 of the key in DER (SubjectPublicKeyInfo)."""

    key: ec.EllipticCurvePublicKey

    def verifies(self, signature: bytes, signed: bytes) -> bool:
        try:
            self.key.verify(signature, signed, ec.ECDSA(SHA256()))
        except InvalidSignature:
            return False
        return True


class Signer(NamedTuple):
    id: str
    role: Role
    path: Path
    key: ec.EllipticCurvePrivateKey

    def sign(self, payload: bytes) -> bytes:
        return with_low_s(self.key.sign(payload, ec.ECDSA(SHA256())))


def with_low_s(signature: bytes) -> bytes:
    """Return the ECDSA signature with the smaller of its two valid s values.

    If (r, s) is valid, so is (r, n - s), which anybody can compute without the key. The same release would then have
    a second digest. https://github.com/bitcoin/bips/blob/master/bip-0062.mediawiki
    """
    r, s = decode_dss_signature(signature)
    return encode_dss_signature(r, min(s, CURVE_ORDER - s))


def has_low_s(signature: bytes) -> bool:
    """Return True if the signature has the smaller s. Malformed bytes also return True, because they never verify."""
    try:
        return with_low_s(signature) == signature
    except ValueError:
        return True


def keys_folder() -> Path:
    """Return the folder in QINGLAN_KEYS, else the mounted folder if it exists, else ~/.config/qinglan/keys."""
    named = os.environ.get(KEYS_VARIABLE) or (MOUNTED_KEYS if MOUNTED_KEYS.is_dir() else "~/.config/qinglan/keys")
    return Path(named).expanduser()


def load_signer(role: Role, folder: Path | None = None) -> Signer:
    """Load a role's private key; raises a ConfigError if it is missing, malformed or writable by other users."""
    path = (folder or keys_folder()) / f"{role}.pem"
    try:
        if path.stat().st_mode & 0o022:
            raise ConfigError(
                f"{path}: others can write to this private key. Run `chmod 600 {path}` or make a new key."
            )
        key = load_pem_private_key(read_plain(path), None)
    except OSError as error:
        raise ConfigError(
            f"{path}: no {role}'s key ({error.strerror}). `qinglan keys new` makes one; on a cluster, mount the "
            f"Secret that holds {role}.pem at {MOUNTED_KEYS}."
        ) from error
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise ConfigError(f"{path}: no private key in PEM without a password ({error}).") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.curve.name != "secp256r1":
        raise ConfigError(f"{path}: only EC keys on P-256 are accepted. `qinglan keys new` makes one.")
    return Signer(key_id(key.public_key()), role, path, key)


def make_key(path: Path) -> str:
    """Write a new private key that only its owner can read, and return the public key in PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    try:
        # mkdir(parents=True) would make the parents with the umask's mode.
        for folder in (*reversed(path.parent.parents), path.parent):
            if not folder.is_dir():
                folder.mkdir(exist_ok=True, mode=0o700)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    except OSError as error:
        raise ConfigError(
            f"{path}: no key can be written here ({error.strerror}). Remove it, or name another folder."
        ) from error
    return public_pem(key.public_key())


def public_pem(key: ec.EllipticCurvePublicKey) -> str:
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


def parse_public_key(pem: str) -> PublicKey:
    """Parse a public key in PEM; raises a ConfigError if it is not an EC key on P-256."""
    try:
        key = load_pem_public_key(pem.encode())
    except (ValueError, UnsupportedAlgorithm) as error:
        raise ConfigError(f"no public key in PEM ({error})") from error
    if not isinstance(key, ec.EllipticCurvePublicKey) or key.curve.name != "secp256r1":
        raise ConfigError("only EC keys on P-256 are accepted")
    return PublicKey(key_id(key), key)


def key_id(key: ec.EllipticCurvePublicKey) -> str:
    return hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()
