"""A large file into S3 in parts, several at once; what a killed upload left there is gone on with.

A part counts as sent if its ETag is the MD5 of our own bytes, so neither another cut of the file nor a damaged part
is taken over. S3 refuses a part that came otherwise than its MD5, and the whole is checked by the ETag that follows
from its parts. Two who push the same share one upload: whoever is late finds it finished. What other uploads of the
file there are is of no use then, and goes; of artifacts that nobody pushes again, MinIO drops them after a day.
"""

import hashlib
from base64 import b64encode
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from qinglan.errors import DataError, OutageError
from qinglan.progress import Transfer
from qinglan.store.connection import RETRIES_OF_A_PART, Connection
from qinglan.store.parallel import in_order
from qinglan.store.shelf import PART, Content, Hashed

SHA256 = "x-amz-meta-sha256"
NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
MOST_PARTS = 10_000
TRIES = 4
GONE = "NoSuchUpload"
OTHERS_CAME_BETWEEN = {GONE, "InvalidPart"}


class Sent(NamedTuple):
    """A part that the server holds."""

    etag: str
    md5: bytes


def upload(s3: Connection, key: str, source: Path, sha256: str, tally: Transfer) -> None:
    """A DataError, and nothing left there, if the source has changed meanwhile."""
    from minio.error import S3Error
    from urllib3.exceptions import HTTPError

    whole = Content(sha256, source.stat().st_size)
    for _ in range(TRIES):
        begun = _Upload(s3, key, _furthest(s3, key) or _begin(s3, key, sha256), tally)
        try:
            begun.go_on(source, whole)
        except DataError:
            _abort(s3, key, begun.id)
            raise
        except S3Error as error:
            if error.code not in OTHERS_CAME_BETWEEN:
                raise
        except HTTPError:  # so it looks too where S3 hangs up on a part of an upload that it no longer has
            if begun.id in _begun(s3, key):
                raise
        if _held(s3, key) == whole:
            tally.there(whole.size - begun.counted)
            for left in _begun(s3, key):
                _abort(s3, key, left)
            return
        tally.moved(-begun.counted)
    raise OutageError(f"{s3.address}: others broke off the upload of {key} {TRIES} times. Push again.")


class _Upload:
    """One upload of a file, from here or begun by another."""

    def __init__(self, s3: Connection, key: str, id: str, tally: Transfer) -> None:
        self.id = id
        self._s3, self._key, self._tally = s3, key, tally
        self._there = _parts_there(s3, key, id)
        self._sizes: list[int] = []

    def go_on(self, source: Path, whole: Content) -> None:
        with source.open("rb") as file:
            hashed = Hashed(file)
            sent = list(in_order(self._send, _parts(hashed, whole.size)))
        hashed.must_be(whole.sha256, source)
        self._complete(sent)

    @property
    def counted(self) -> int:
        """Bytes of it that the progress has."""
        return sum(self._sizes)

    def _send(self, part: tuple[int, bytes]) -> Sent:
        """A part, unless it is there."""
        number, data = part
        md5 = hashlib.md5(data, usedforsecurity=False)
        if self._there.get(number) == md5.hexdigest():
            self._sizes.append(len(data))
            self._tally.there(len(data))
            return Sent(md5.hexdigest(), md5.digest())
        query = {"partNumber": str(number), "uploadId": self.id}
        headers = {"Content-MD5": b64encode(md5.digest()).decode()}
        answer = self._s3.ask("PUT", self._key, query, data, headers, retries=RETRIES_OF_A_PART)
        self._sizes.append(len(data))
        self._tally.moved(len(data))
        return Sent(answer.headers["ETag"].strip('"'), md5.digest())

    def _complete(self, sent: Sequence[Sent]) -> None:
        """The parts as one object; an S3Error also where S3 says only after its 200 that it could not."""
        from minio.error import S3Error

        parts = "".join(
            f"<Part><PartNumber>{number}</PartNumber><ETag>{part.etag}</ETag></Part>"
            for number, part in enumerate(sent, 1)
        )
        body = f'<CompleteMultipartUpload xmlns="{NAMESPACE}">{parts}</CompleteMultipartUpload>'.encode()
        answer = self._s3.ask("POST", self._key, {"uploadId": self.id}, body)
        found = ElementTree.fromstring(answer.data)
        if found.tag == "Error":
            raise S3Error.fromxml(answer)
        etag = (found.findtext("{*}ETag") or "").strip('"')
        if (expected := whole_etag(sent)) and etag != expected:
            raise OutageError(
                f"{self._s3.address}: {self._key} was put together as {etag}, not {expected}. Push again."
            )


def whole_etag(sent: Sequence[Sent]) -> str | None:
    """What S3 calls an object of these parts; None where it encrypts them, and ETags are no digests of ours."""
    if any(part.etag != part.md5.hex() for part in sent):
        return None
    return f"{hashlib.md5(b''.join(part.md5 for part in sent), usedforsecurity=False).hexdigest()}-{len(sent)}"


def part_size(size: int) -> int:
    """Depends on the file alone, so that what another push has sent fits."""
    return max(PART, -(-size // MOST_PARTS))


def _parts(file: Hashed, size: int) -> Iterator[tuple[int, bytes]]:
    """Numbered from one; fewer than there should be where the file has become shorter."""
    each = part_size(size)
    for number, start in enumerate(range(0, size, each), 1):
        yield number, file.read(min(each, size - start))


def _begin(s3: Connection, key: str, sha256: str) -> str:
    answer = s3.ask("POST", key, {"uploads": ""}, headers={SHA256: sha256})
    return ElementTree.fromstring(answer.data).findtext("{*}UploadId") or ""


def _begun(s3: Connection, key: str) -> list[str]:
    """The unfinished uploads of exactly this key."""
    answer = ElementTree.fromstring(s3.ask("GET", "", {"uploads": "", "prefix": key}).data)
    found = answer.iterfind("{*}Upload")
    return [upload.findtext("{*}UploadId") or "" for upload in found if upload.findtext("{*}Key") == key]


def _furthest(s3: Connection, key: str) -> str | None:
    return max(_begun(s3, key), key=lambda id: len(_parts_there(s3, key, id)), default=None)


def _parts_there(s3: Connection, key: str, id: str) -> dict[int, str]:
    """The ETags of an upload's parts; none where it is gone."""
    from minio.error import S3Error

    found: dict[int, str] = {}
    query = {"uploadId": id}
    while True:
        try:
            answer = ElementTree.fromstring(s3.ask("GET", key, query).data)
        except S3Error as error:
            if error.code == GONE:
                return {}
            raise
        for part in answer.iterfind("{*}Part"):
            found[int(part.findtext("{*}PartNumber") or 0)] = (part.findtext("{*}ETag") or "").strip('"')
        if answer.findtext("{*}IsTruncated") != "true":
            return found
        query["part-number-marker"] = answer.findtext("{*}NextPartNumberMarker") or ""


def _abort(s3: Connection, key: str, id: str) -> None:
    from minio.error import S3Error

    try:
        s3.ask("DELETE", key, {"uploadId": id})
    except S3Error as error:
        if error.code != GONE:
            raise


def _held(s3: Connection, key: str) -> Content | None:
    """The object as it was uploaded, if it is there."""
    from minio.error import S3Error

    try:
        found = s3.client.stat_object(s3.settings.bucket, key)
    except S3Error as error:
        if error.code == "NoSuchKey":
            return None
        raise
    return Content(str((found.metadata or {}).get(SHA256, "")), found.size or 0)
