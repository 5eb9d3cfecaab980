"""Store of artifacts by digest, and of names that point at artifacts, in a folder or in S3.

    from qinglan.files.digests import digest

    store = open_store("runs/store")                  # or "s3://bucket/prefix"
    uri = store.push(Path("release"), digest(Path("release")))
    store.point("fivedoctors/rewriter", digest(Path("release")), expected=None, by="gate")

    current = store.name("fivedoctors/rewriter")      # None: no such name yet
    store.pull(current.digest, Path("model"))         # every byte is checked on its way

An artifact never changes: it is stored whole or not at all, and a second push only checks it. A name can move; each
move adds an entry. `point` takes the digest to which the name points now, and raises a ConflictError if another
writer has moved the name meanwhile.

A second push sends only the files that are missing; a large file whose upload was killed is sent again from its
beginning. A pull that was interrupted begins again. Large files are sent in parts of 16 MiB, four at once, and
fetched in pieces of 8 MiB. Digests are checked when files are read and when they arrive.

S3 settings come from QINGLAN_S3_ENDPOINT, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and, if set, AWS_SESSION_TOKEN and
AWS_REGION. A folder serves the processes of one machine; several machines need S3. In a bucket outside of MinIO, let
a lifecycle rule remove incomplete uploads (AbortIncompleteMultipartUpload), which a killed push leaves behind.

Each tenant has its own prefix, s3://bucket/tenants/<tenant>; no name, digest, kind or path leads out of it. Let the
server keep a tenant's keys out of other prefixes: allow s3:ListBucket with s3:prefix like tenants/<tenant>/*,
s3:GetBucketLocation of the bucket, and s3:GetObject, s3:PutObject and s3:AbortMultipartUpload of tenants/<tenant>/*.

    releases/<digest>/...                     the files
    releases/<digest>.json                    their digests and sizes, written last
    notes/<digest>/<word>-<sha256>            notes that were added to a release later
    tests/<digest>/<line>/000001.json         models that a locked test has judged, in order
    names/<tenant>/<model>/000001.json        one signed entry per move, with the sha256 of the entry before it
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
"""Environment variable that names the store of releases, if neither a profile nor an option does."""


def open_store(address: str, environment: Mapping[str, str] = os.environ) -> Store:
    """Open a store in a folder (a path or file://) or in S3 (s3://bucket/prefix) without a request to it."""
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
