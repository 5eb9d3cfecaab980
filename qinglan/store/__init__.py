"""Artifacts by digest, and names that point at them, in a folder or in S3.

    from qinglan.files.digests import digest

    store = open_store("runs/store")                  # or "s3://bucket/prefix"
    uri = store.push(Path("release"), digest(Path("release")))
    store.point("fivedoctors/rewriter", digest(Path("release")), expected=None, by="gate")

    current = store.name("fivedoctors/rewriter")      # None: no such name yet
    store.pull(current.digest, Path("model"))         # every byte is checked on its way

What has a digest never changes: it is whole or not there, and pushed again it is only checked. What has a name can
move, and each move is one more entry: `point` says from where, and loses with a ConflictError when that is no longer
so.

A push or a pull that was cut off, by whomever, goes on where it was when it is done again: files and parts of files
that are there are checked and not moved twice. Large files go in parts of 16 MiB, four at once and no more than five
in memory, and come in pieces of 8 MiB. Every byte has its digest checked where it is read and where it arrives.

S3 is reached at QINGLAN_S3_ENDPOINT with AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and, where there are any,
AWS_SESSION_TOKEN and AWS_REGION. A folder is for the processes of one machine; for more than one, use S3.

A tenant has a prefix of its own, s3://bucket/tenants/<tenant>, and no name, digest, kind or path leads out of it.
What keeps a tenant's keys from other prefixes is the server: let them do s3:ListBucket where s3:prefix is like
tenants/<tenant>/*, s3:GetBucketLocation and s3:ListBucketMultipartUploads of the bucket, and s3:GetObject,
s3:PutObject, s3:ListMultipartUploadParts and s3:AbortMultipartUpload of tenants/<tenant>/*.

    releases/<digest>/...                     the files
    releases/<digest>.json                    their digests and sizes, written last
    notes/<digest>/<word>-<sha256>            what was laid beside a release later
    tests/<digest>/<line>/000001.json         models that a locked test has judged, in order
    names/<tenant>/<model>/000001.json        one entry a move, signed, each with the sha256 of the one before it
"""

import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from qinglan.errors import ConfigError
from qinglan.store.folder_backend import FolderBackend
from qinglan.store.name_history import HistoryEntry, NameHistory, check_history
from qinglan.store.s3_backend import S3Backend
from qinglan.store.s3_connection import S3Settings
from qinglan.store.store import Store

__all__ = ["STORE_VARIABLE", "HistoryEntry", "NameHistory", "Store", "check_history", "open_store"]

STORE_VARIABLE = "QINGLAN_STORE"
"""The environment variable that names the store of releases, if neither a profile nor an option does."""


def open_store(address: str, environment: Mapping[str, str] = os.environ) -> Store:
    """The store in a folder (a path or file://) or in S3 (s3://bucket/prefix); nothing is asked of it yet."""
    if not address.strip():
        raise ConfigError("No store was named: give a folder, or s3://bucket/prefix.")
    scheme = address.partition("://")[0] if "://" in address else ""
    match scheme:
        case "":
            return Store(FolderBackend(Path(address)))
        case "file":
            return Store(FolderBackend(Path(unquote(urlsplit(address).path))))
        case "s3":
            return Store(S3Backend(S3Settings.of(address, environment)))
    raise ConfigError(f"{address}: a store is a folder or s3://bucket/prefix, not {scheme}://.")
