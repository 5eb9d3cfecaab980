"""DSSE envelopes. A signature covers the raw bytes of a payload, so it is verified without re-encoding them.

sealed = sign_envelope(payload, IN_TOTO, [signer])
payload = open_envelope(sealed).payload       # not verified yet: `TrustPolicy.check_signatures` does that
"""

import base64
from collections.abc import Iterable
from typing import NamedTuple

import orjson

from qinglan.documents import parse_json_mapping
from qinglan.errors import DataError
from qinglan.lineage.signing.keys import PublicKey, Signer

ENVELOPE_SUFFIX = ".dsse.json"
"""Suffix of an envelope's file name."""

IN_TOTO = "application/vnd.in-toto+json"


class Signature(NamedTuple):
    key: str
    """Id of the key as the envelope claims it; it is not verified."""

    value: bytes


class Envelope(NamedTuple):
    payload: bytes
    payload_type: str
    signatures: tuple[Signature, ...]


def sign_envelope(payload: bytes, payload_type: str, signers: Iterable[Signer]) -> bytes:
    """Sign the payload with each signer, and return the envelope as JSON on one line."""
    signed = pre_authentication_encoding(payload, payload_type)
    signatures = [{"keyid": signer.id, "sig": base64.b64encode(signer.sign(signed)).decode()} for signer in signers]
    body = {"payload": base64.b64encode(payload).decode(), "payloadType": payload_type, "signatures": signatures}
    return orjson.dumps(body)


def pre_authentication_encoding(payload: bytes, payload_type: str) -> bytes:
    """Return the bytes that are signed: DSSE's pre-authentication encoding of the payload."""
    # https://github.com/secure-systems-lab/dsse/blob/master/protocol.md#signature-definition
    kind = payload_type.encode()
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)


def open_envelope(sealed: bytes, where: str = "envelope") -> Envelope:
    """Parse an envelope without verifying its signatures; raises a DataError if it is malformed."""
    try:
        body = parse_json_mapping(sealed, where)
        signatures = tuple(
            Signature(str(item.get("keyid", "")), _decoded(item["sig"])) for item in body["signatures"]
        )
        return Envelope(_decoded(body["payload"]), str(body["payloadType"]), signatures)
    except DataError as error:
        line = str(error).removeprefix(f"{where}:").rstrip(".")
        raise DataError(f"{where}: not a DSSE envelope (line {line}).") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{where}: not a DSSE envelope ({type(error).__name__}: {error}).") from error


def _decoded(text: str) -> bytes:
    """Decode canonical base64, and refuse other spellings that the library accepts, such as more padding.

    One signature must not have two spellings, because a statement's id is the hash of its envelope.
    """
    content = base64.b64decode(text, validate=True)
    if base64.b64encode(content).decode() != text:
        raise ValueError("not canonical base64")
    return content


def verify_signature(envelope: Envelope, signature: Signature, key: PublicKey) -> bool:
    return key.verifies(signature.value, pre_authentication_encoding(envelope.payload, envelope.payload_type))
