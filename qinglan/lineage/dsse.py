"""DSSE envelopes: signatures over raw bytes, which are never written anew between signing and verifying.

sealed = sign_envelope(payload, IN_TOTO, [signer])
payload = open_envelope(sealed).payload       # still to be verified: `TrustPolicy.worth`
"""

import base64
from collections.abc import Iterable
from typing import NamedTuple

import orjson

from qinglan.documents import parse_json_mapping
from qinglan.errors import DataError
from qinglan.lineage.keys import PublicKey, Signer

ENVELOPE_SUFFIX = ".dsse.json"
"""The ending of an envelope's file name."""

IN_TOTO = "application/vnd.in-toto+json"


class Signature(NamedTuple):
    key: str
    """The id of the key; nothing is proven by it."""

    value: bytes


class Envelope(NamedTuple):
    payload: bytes
    payload_type: str
    signatures: tuple[Signature, ...]


def sign_envelope(payload: bytes, payload_type: str, signers: Iterable[Signer]) -> bytes:
    """The payload with these signatures, as JSON on one line."""
    signed = pre_authentication_encoding(payload, payload_type)
    signatures = [{"keyid": signer.id, "sig": base64.b64encode(signer.sign(signed)).decode()} for signer in signers]
    body = {"payload": base64.b64encode(payload).decode(), "payloadType": payload_type, "signatures": signatures}
    return orjson.dumps(body)


def pre_authentication_encoding(payload: bytes, payload_type: str) -> bytes:
    """The bytes that are signed: DSSE's pre-authentication encoding."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)


def open_envelope(sealed: bytes, where: str = "envelope") -> Envelope:
    """Its parts, nothing verified; a DataError where it is none."""
    try:
        body = parse_json_mapping(sealed, where)
        signatures = tuple(
            Signature(str(item.get("keyid", "")), _decoded(item["sig"])) for item in body["signatures"]
        )
        return Envelope(_decoded(body["payload"]), str(body["payloadType"]), signatures)
    except DataError as error:
        line = str(error).removeprefix(f"{where}:").rstrip(".")
        raise DataError(f"{where}: no DSSE envelope (line {line}).") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{where}: no DSSE envelope ({type(error).__name__}: {error}).") from error


def _decoded(text: str) -> bytes:
    """Decode base64 in its canonical form alone; the library takes others too, such as one with more padding."""
    content = base64.b64decode(text, validate=True)
    if base64.b64encode(content).decode() != text:
        raise ValueError("not base64 as it is written")
    return content


def verify_signature(envelope: Envelope, signature: Signature, key: PublicKey) -> bool:
    """Verify that this key made this signature over this very payload and type."""
    return key.verifies(signature.value, pre_authentication_encoding(envelope.payload, envelope.payload_type))
