"""Sign a model in OpenSSF's format (OMS) with the public model-signing library, so that anyone can verify it.

    sign_model(folder, signature, signer)
    python -m model_signing verify key --no-ignore-git-paths --signature model.sig --public_key releaser.pub model/

The signer uses a key instead of a certificate, because the library accepts expired certificates. Each file has one
digest, because the library cannot verify digests of shards. All files are signed, also those of git. The model's name
is in the release's statement.
"""

import base64
import tempfile
from pathlib import Path
from typing import Any

from qinglan.documents import parse_json_mapping
from qinglan.errors import DataError
from qinglan.files.files import sha256_bytes
from qinglan.files.plain_files import read_plain
from qinglan.lineage.signing.findings import State
from qinglan.lineage.signing.keys import PublicKey, Signer, public_pem

SERIALIZATION = {"method": "files", "hash_type": "sha256", "allow_symlinks": False}
Fault = tuple[State, str]
OTHER_FILES = "Signature mismatch"
"""Start of the library's message if a signature is valid, but was made over other files."""


def sign_model(folder: Path, signature: Path, signer: Signer) -> None:
    """Sign every file of the folder. The signature file must lie outside the folder."""
    from model_signing.signing import Config

    # https://github.com/sigstore/model-transparency#signing-with-keys
    config = Config().set_hashing_config(_hashing())
    config.use_elliptic_key_signer(private_key=signer.path).sign(folder, signature)


def signature_fault(folder: Path, signature: Path, key: PublicKey) -> Fault | None:
    """Check that a file is the key's signature over exactly the folder's files; returns a fault, or None if it is.

    The folder must hold plain files only. The library checks for missing and extra files only if the signature says
    that no file was ignored, so its serialization must be SERIALIZATION.
    """
    try:
        bundle = parse_json_mapping(read_plain(signature), signature.name)
        hint = bundle["verificationMaterial"]["publicKey"]["hint"]
        payload = parse_json_mapping(base64.b64decode(bundle["dsseEnvelope"]["payload"], validate=True), "payload")
        serialization = payload["predicate"]["serialization"]
    except OSError as error:
        return "altered", f"cannot be read ({error.strerror})"
    except (ValueError, KeyError, TypeError, DataError) as error:
        return "altered", f"not a model signature made with an EC key ({type(error).__name__}: {error})"
    if hint != sha256_bytes(public_pem(key.key).encode()):
        return "untrusted", "signed with another key than the release's statement"
    if serialization != SERIALIZATION:
        return "altered", f"signed as {serialization}, which can leave files out; it must be {SERIALIZATION}"
    return _verified(folder, signature, key)


def _verified(folder: Path, signature: Path, key: PublicKey) -> Fault | None:
    from model_signing.verifying import Config

    with tempfile.NamedTemporaryFile("w", suffix=".pem") as public:
        public.write(public_pem(key.key))
        public.flush()
        config = Config().set_hashing_config(_hashing()).use_elliptic_key_verifier(public_key=public.name)
        try:
            config.verify(folder, signature)
        except Exception as error:  # the library and its dependencies raise many kinds; each means that it refuses
            return "altered", f"model_signing refuses it: {str(error)[:300] or type(error).__name__}"
    return None


def _hashing() -> Any:
    from model_signing.hashing import Config

    # model-signing ignores git's files unless told otherwise, and then they would not be covered.
    config = Config().use_file_serialization(hashing_algorithm="sha256")
    return config.set_ignored_paths(paths=(), ignore_git_paths=False)
