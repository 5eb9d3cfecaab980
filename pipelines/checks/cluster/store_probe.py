"""Try to read an input of the run, or a store of releases, with the key that the steps have.

A store inside the cluster may not be reachable from here, so a missing answer is no error.
"""

import re
from collections.abc import Mapping
from urllib.parse import urlsplit
from xml.etree import ElementTree

from pipelines.checks.cluster.cluster_snapshot import StoreAnswer
from pipelines.graph.store_secret import FETCH_ENDPOINT, REGION, STORE_ENDPOINT, TOKEN
from qinglan.store.s3_connection import (
    ACCESS_KEY_VARIABLE,
    ENDPOINT_PATTERN,
    SECRET_KEY_VARIABLE,
    S3Connection,
    S3Settings,
)

ABSENT = {"NoSuchKey": "it is not there", "NoSuchBucket": "the store has no such bucket"}
EMPTY = "InvalidRange"
"""S3's answer to a request for the first byte of an empty object."""

BUCKET = re.compile(r"((?:s3|minio)://)([^/?]+)")
"""Bucket of an s3:// or minio:// address. gs:// is left out, since Google's client finds its key by itself."""


def bucket_of(uri: str) -> tuple[str, ...] | None:
    match = BUCKET.match(uri)
    return match.groups() if match else None


def in_other_bucket(uri: str, root: str | None) -> bool:
    """Tell whether an input is in an S3 bucket whose key KFP's launcher lacks; False if that is not known."""
    return root is not None and bucket_of(uri) not in (None, bucket_of(root))


def probe_input(uri: str, secret: Mapping[str, str]) -> StoreAnswer | None:
    """List and read an input as KFP's launcher does; None if it can be read, or if the Secret lacks a key."""
    endpoint = secret.get(FETCH_ENDPOINT) or f"https://s3.{secret.get(REGION)}.amazonaws.com"
    return _probe(uri, endpoint, secret, required=True) if secret.get(REGION) else None


def probe_store(address: str, secret: Mapping[str, str]) -> StoreAnswer | None:
    """Try to read a store of releases as our own steps do; an empty store is fine."""
    return _probe(address, secret.get(STORE_ENDPOINT, ""), secret, required=False)


# The first byte is requested, and not the object's head: a HEAD needs the same right, but its refusal has no body
# that names the reason (https://docs.aws.amazon.com/AmazonS3/latest/API/API_HeadObject.html).
def _probe(uri: str, endpoint: str, secret: Mapping[str, str], required: bool) -> StoreAnswer | None:
    from minio.error import MinioException, S3Error
    from urllib3.exceptions import HTTPError

    key, hidden = secret.get(ACCESS_KEY_VARIABLE, ""), secret.get(SECRET_KEY_VARIABLE, "")
    bucket = urlsplit(uri).netloc
    if not (key and hidden and ENDPOINT_PATTERN.fullmatch(endpoint)):
        return None
    region, token = secret.get(REGION) or None, secret.get(TOKEN) or None
    connection = S3Connection(S3Settings(bucket, "", endpoint, key, hidden, token, region), retries=0)
    try:
        first = _first_key(connection, uri.partition(bucket)[2].strip("/"))
        if first:
            connection.ask("GET", first, {"Range": "bytes=0-0"})
    except S3Error as error:
        code = error.code or ""
        if code in ABSENT:
            return StoreAnswer("absent", ABSENT[code])
        return None if code == EMPTY else StoreAnswer("refused", f"{endpoint} refuses the key ({code})")
    # minio refuses a malformed region of the Secret with a ValueError (minio/helpers.py, BaseURL).
    except (HTTPError, MinioException, ElementTree.ParseError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        return StoreAnswer("silent", f"{endpoint} gives no answer from here ({reason})")
    return StoreAnswer("absent", ABSENT["NoSuchKey"]) if required and not first else None


def _first_key(connection: S3Connection, path: str) -> str:
    for prefix in (path, f"{path}/") if path else ("",):
        listing = connection.client.list_objects(connection.settings.bucket, prefix, recursive=True)
        key = next((item.object_name or "" for item in listing), "")
        if key == path or key.startswith(f"{path}/") or (key and not path):
            return key
    return ""
