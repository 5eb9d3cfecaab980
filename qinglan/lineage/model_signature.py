"""The model's signature in the OpenSSF's format (OMS), by the model-signing library: others can verify it too.

    sign_model(folder, signature, signer)
    python -m model_signing verify key --no-ignore-git-paths --signature model.sig --public_key releaser.pub model/

Key mode and one digest a file: the library's certificate mode takes expired certificates, and its shards it cannot
verify. Nothing is ignored, git's files neither. The folder's name is not in it: the release's statement has the name.
"""

import base64
import hashlib
import tempfile
from pathlib import Path
from typing import Any

from qinglan.documents import parse_json_mapping
from qinglan.errors import DataError
from qinglan.lineage.findings import State
from qinglan.lineage.keys import PublicKey, Signer, public_pem
from qinglan.plain_files import read_plain

SERIALIZATION = {"method": "files", "hash_type": "sha256", "allow_symlinks": False}
Fault = tuple[State, str]
OTHER_FILES = "Signature mismatch"
"""The beginning of the library's message where a right signature is over other files than these."""


def sign_model(folder: Path, signature: Path, signer: Signer) -> None:
    """Sign every file of the folder; the signature must lie outside of it."""
    from model_signing.signing import Config

    config = Config().set_hashing_config(_hashing())
    config.use_elliptic_key_signer(private_key=signer.path).sign(folder, signature)


def signature_fault(folder: Path, signature: Path, key: PublicKey) -> Fault | None:
    """Why the signature does not vouch for every file of the folder with this key; None where it does.

    There must be nothing but plain files in the folder. The library compares all files with all that were signed, as
    long as nothing was ignored when signing: SERIALIZATION.
    """
    try:
        bundle = parse_json_mapping(read_plain(signature), signature.name)
        hint = bundle["verificationMaterial"]["publicKey"]["hint"]
        payload = parse_json_mapping(base64.b64decode(bundle["dsseEnvelope"]["payload"], validate=True), "payload")
        serialization = payload["predicate"]["serialization"]
    except OSError as error:
        return "altered", f"cannot be read ({error.strerror})"
    except (ValueError, KeyError, TypeError, DataError) as error:
        return "altered", f"no model signature of an EC key ({type(error).__name__}: {error})"
    if hint != key_hint(key):
        return "untrusted", "signed with another key than the release's statement"
    if serialization != SERIALIZATION:
        return "altered", f"signed as {serialization}, which can leave files out; {SERIALIZATION} is wanted"
    return _verified(folder, signature, key)


def key_hint(key: PublicKey) -> str:
    """The name of a key in a signature."""
    return hashlib.sha256(public_pem(key.key).encode()).hexdigest()


def _verified(folder: Path, signature: Path, key: PublicKey) -> Fault | None:
    from model_signing.verifying import Config

    with tempfile.NamedTemporaryFile("w", suffix=".pem") as public:
        public.write(public_pem(key.key))
        public.flush()
        config = Config().set_hashing_config(_hashing()).use_elliptic_key_verifier(public_key=public.name)
        try:
            config.verify(folder, signature)
        except Exception as error:  # the library's, and of what it stands on: of many kinds, and all of them refusals
            return "altered", f"model_signing refuses it: {str(error)[:300] or type(error).__name__}"
    return None


def _hashing() -> Any:
    from model_signing.hashing import Config

    return Config().use_file_serialization(hashing_algorithm="sha256").set_ignored_paths(
        paths=(), ignore_git_paths=False
    )  # fmt: skip
