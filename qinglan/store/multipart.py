"""A large file into S3 in parts, several at once; what a killed upload left there is gone on with.

Each part is signed with the digest that its bytes must have, so S3 refuses others; the whole is checked by the ETag
that follows from those of its parts. A part counts as sent if it has that digest here and its ETag is the MD5 of the
same bytes, so neither another cut of the file nor a changed part is taken over. Two who push the same share one
upload: whoever is late finds it finished. Other uploads of the file are of no use then and go; those of artifacts
that nobody pushes again MinIO drops after a day.
"""

import hashlib
from collections.abc import Iterator, Sequence
from typing import BinaryIO
from xml.etree import ElementTree

from qinglan.errors import DataError, OutageError
from qinglan.store.backend import ObjectInfo, SourceFile, part_size, source_changed_error
from qinglan.store.parallel import map_in_order
from qinglan.store.s3_connection import PART_RETRIES, S3Connection
from qinglan.terminal.progress import Transfer

SHA256_HEADER = "x-amz-meta-sha256"
ENCRYPTION_HEADER = "x-amz-server-side-encryption"
NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
TRIES = 4
NO_SUCH_UPLOAD = "NoSuchUpload"
CONCURRENT_UPLOAD_CODES = {NO_SUCH_UPLOAD, "InvalidPart"}
WRONG_BYTES_CODES = {"XAmzContentSHA256Mismatch", "BadDigest", "IncompleteBody"}


def put_object(
    s3: S3Connection,
    key: str,
    query: dict[str, str],
    headers: dict[str, str],
    data: bytes,
    sha256: str,
    source: SourceFile,
) -> str:
    """Bytes that S3 takes only if they have the digest; their ETag."""
    from minio.error import S3Error

    try:
        return s3.ask("PUT", key, query, data, headers, sha256, PART_RETRIES).headers["ETag"].strip('"')
    except S3Error as error:
        if error.code in WRONG_BYTES_CODES:
            raise source_changed_error(source) from error
        raise


def upload_parts(s3: S3Connection, key: str, source: SourceFile, tally: Transfer) -> None:
    """A DataError, and nothing left there, if the source has changed meanwhile."""
    from minio.error import S3Error
    from urllib3.exceptions import HTTPError

    for _ in range(TRIES):
        begun = _Upload(
            s3, key, _most_complete_upload(s3, key) or _start_upload(s3, key, source.sha256), source, tally
        )
        try:
            begun.go_on()
        except DataError:
            _abort(s3, key, begun.id)
            raise
        except S3Error as error:
            if error.code not in CONCURRENT_UPLOAD_CODES:
                raise
        except HTTPError:  # so it looks too where S3 hangs up on a part of an upload that it no longer has
            if begun.id in _unfinished_uploads(s3, key):
                raise
        if _stored_object(s3, key) == ObjectInfo(source.sha256, source.size):
            tally.add_existing(source.size - begun.counted)
            for left in _unfinished_uploads(s3, key):
                _abort(s3, key, left)
            return
        tally.add_moved(-begun.counted)
    raise OutageError(f"{s3.address}: others broke off the upload of {key} {TRIES} times. Push again.")


class _Upload:
    """One upload of a file, from here or begun by another."""

    def __init__(self, s3: S3Connection, key: str, id: str, source: SourceFile, tally: Transfer) -> None:
        self.id = id
        self._s3, self._key, self._source, self._tally = s3, key, source, tally
        self._sent = _uploaded_parts(s3, key, id)
        self._sizes: list[int] = []

    def go_on(self) -> None:
        with self._source.path.open("rb") as file:
            etags = list(map_in_order(self._send, _parts(file, self._source)))
        self._complete(etags)

    @property
    def counted(self) -> int:
        """Bytes of it that the progress has."""
        return sum(self._sizes)

    def _send(self, part: tuple[int, bytes]) -> str:
        """A part, unless it is there; its ETag."""
        number, data = part
        sha256, etag = self._source.parts[number - 1], self._sent.get(number)
        if etag and _md5(data) == etag and hashlib.sha256(data).hexdigest() == sha256:
            self._tally.add_existing(len(data))
        else:
            query = {"partNumber": str(number), "uploadId": self.id}
            etag = put_object(self._s3, self._key, query, {}, data, sha256, self._source)
            self._tally.add_moved(len(data))
        self._sizes.append(len(data))
        return etag

    def _complete(self, etags: Sequence[str]) -> None:
        """The parts as one object; an S3Error also where S3 says only after its 200 that it could not."""
        from minio.error import S3Error

        parts = "".join(
            f"<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>"
            for number, etag in enumerate(etags, 1)
        )
        body = f'<CompleteMultipartUpload xmlns="{NAMESPACE}">{parts}</CompleteMultipartUpload>'.encode()
        answer = self._s3.ask("POST", self._key, {"uploadId": self.id}, body)
        result = ElementTree.fromstring(answer.data)  # noqa: S314 - the store's own answer; expat bounds its entities
        if result.tag == "Error":
            raise S3Error.fromxml(answer)
        etag, expected = (result.findtext("{*}ETag") or "").strip('"'), multipart_etag(etags)
        if etag != expected and ENCRYPTION_HEADER not in answer.headers:
            raise OutageError(f"{self._s3.address}: {self._key} became {etag}, not {expected}. Push again.")


def multipart_etag(etags: Sequence[str]) -> str:
    """The ETag that S3 gives an object of these parts, unless it encrypts them with keys of its own."""
    return f"{_md5(b''.join(bytes.fromhex(etag) for etag in etags))}-{len(etags)}"


def _md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def _parts(file: BinaryIO, source: SourceFile) -> Iterator[tuple[int, bytes]]:
    """Numbered from one."""
    for number in range(1, len(source.parts) + 1):
        yield number, file.read(part_size(source.size))


def _start_upload(s3: S3Connection, key: str, sha256: str) -> str:
    answer = s3.ask("POST", key, {"uploads": ""}, headers={SHA256_HEADER: sha256})
    return ElementTree.fromstring(answer.data).findtext("{*}UploadId") or ""  # noqa: S314 - the store's own answer; expat bounds its entities


def _unfinished_uploads(s3: S3Connection, key: str) -> list[str]:
    """The unfinished uploads of exactly this key."""
    answer = ElementTree.fromstring(s3.ask("GET", "", {"uploads": "", "prefix": key}).data)  # noqa: S314 - the store's own answer; expat bounds its entities
    uploads = answer.iterfind("{*}Upload")
    return [upload.findtext("{*}UploadId") or "" for upload in uploads if upload.findtext("{*}Key") == key]


def _most_complete_upload(s3: S3Connection, key: str) -> str | None:
    return max(_unfinished_uploads(s3, key), key=lambda id: len(_uploaded_parts(s3, key, id)), default=None)


def _uploaded_parts(s3: S3Connection, key: str, id: str) -> dict[int, str]:
    """The ETags of an upload's parts; none where it is gone."""
    from minio.error import S3Error

    etags: dict[int, str] = {}
    query = {"uploadId": id}
    while True:
        try:
            answer = ElementTree.fromstring(s3.ask("GET", key, query).data)  # noqa: S314 - the store's own answer; expat bounds its entities
        except S3Error as error:
            if error.code == NO_SUCH_UPLOAD:
                return {}
            raise
        for part in answer.iterfind("{*}Part"):
            etags[int(part.findtext("{*}PartNumber") or 0)] = (part.findtext("{*}ETag") or "").strip('"')
        if answer.findtext("{*}IsTruncated") != "true":
            return etags
        query["part-number-marker"] = answer.findtext("{*}NextPartNumberMarker") or ""


def _abort(s3: S3Connection, key: str, id: str) -> None:
    from minio.error import S3Error

    try:
        s3.ask("DELETE", key, {"uploadId": id})
    except S3Error as error:
        if error.code != NO_SUCH_UPLOAD:
            raise


def _stored_object(s3: S3Connection, key: str) -> ObjectInfo | None:
    """The object as it was uploaded, if it is there."""
    from minio.error import S3Error

    try:
        stat = s3.client.stat_object(s3.settings.bucket, key)
    except S3Error as error:
        if error.code == "NoSuchKey":
            return None
        raise
    return ObjectInfo(str((stat.metadata or {}).get(SHA256_HEADER, "")), stat.size or 0)
