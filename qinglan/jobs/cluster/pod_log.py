"""Copy a pod's log into a file, each line exactly once, even if the stream breaks.

Each line has a timestamp. After a break, the stream is requested again from the last timestamp, and lines that were
already read are skipped. A file beside the log stores the position, so that another process can continue from it.
"""

import contextlib
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from qinglan.files.files import atomic_write, open_private
from qinglan.jobs.cluster.manifest import CONTAINER
from qinglan.kubernetes.api_errors import ApiError
from qinglan.kubernetes.client import Api

QUIET_SECONDS = 300.0
"""Seconds without a line after which the stream is opened again, in case the connection is dead."""

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
NOTE_SECONDS = 1.0
STAMP = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)")


class LogPosition(NamedTuple):
    """Timestamp of the last line that was read, and the line's number among lines with the same timestamp."""

    at: str = ""
    nth: int = 0


def lines_after(lines: Iterable[bytes], last: LogPosition) -> Iterator[tuple[LogPosition, bytes]]:
    """Yield each line after the position `last`, with the line's own position.

    A stream requested from a timestamp begins with lines of this timestamp, and some of them were already read.
    """
    now = LogPosition()
    for line in lines:
        stamp, _, text = line.partition(b" ")
        at = normalise_timestamp(stamp.decode("ascii", "replace"))
        at, text = (at, text) if at else (now.at or last.at, line)  # a line of the server itself has no time
        now = LogPosition(at, now.nth + 1 if at == now.at else 1)
        if now > last:
            yield now, text


def normalise_timestamp(stamp: str) -> str:
    """Convert a timestamp to UTC with nine decimals, so that timestamps sort as text; "" if it is not a timestamp.

    Nodes write timestamps in their own time zone, and without the zeros at the end of a fraction.
    """
    if not (parts := STAMP.fullmatch(stamp)):
        return ""
    whole, fraction, zone = parts.groups()
    moment = datetime.fromisoformat(f"{whole}{zone}").astimezone(UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{fraction or '':0<9}Z"


class LogFile:
    """Log file, with a second file beside it that stores the position up to which the log is complete."""

    def __init__(self, path: Path, pod_uid: str) -> None:
        self.path, self.note, self.pod_uid = path, path.with_name(f".{path.name}.position"), pod_uid
        path.parent.mkdir(parents=True, exist_ok=True)
        self.position, self._noted = self._resume(), 0.0

    def _resume(self) -> LogPosition:
        with contextlib.suppress(FileNotFoundError, orjson.JSONDecodeError):
            noted = orjson.loads(self.note.read_bytes())
            if noted["pod"] == self.pod_uid and self.path.stat().st_size >= noted["size"]:
                with open_private(self.path, "ab") as file:
                    file.truncate(noted["size"])
                return LogPosition(noted["at"], noted["nth"])
        return LogPosition()

    def add(self, line: bytes, position: LogPosition) -> None:
        with open_private(self.path, "ab") as file:
            file.write(line + b"\n")
            size = file.tell()
        self.position = position
        if time.monotonic() - self._noted > NOTE_SECONDS:
            self._write_note(size)

    def close(self) -> None:
        if self.position.at:
            self._write_note(self.path.stat().st_size)

    def _write_note(self, size: int) -> None:
        """Store the position. The next process truncates the log to `size` bytes, and requests the later lines."""
        self._noted = time.monotonic()
        noted = {"pod": self.pod_uid, "size": size, **self.position._asdict()}
        with atomic_write(self.note) as partial:
            partial.write_bytes(orjson.dumps(noted))


class PodLog:
    """Follows one pod's log in a thread, until the pod has ended and its log is read to the end."""

    def __init__(self, api: Api, log: Path, on_line: Callable[[str], None], say: Callable[[str], None]) -> None:
        self.api, self.log, self.on_line, self.say = api, log, on_line, say
        self.error: BaseException | None = None
        """Error of `on_line` or of the log file; the follower of the job raises it."""

        self._over, self._stopped = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._open: Any = None
        self._heard = LogPosition()

    def start(self, pod: Mapping[str, Any]) -> None:
        """Start to read the log of a pod that runs or has run; later calls do nothing."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, args=(pod["metadata"],), name="log", daemon=True)
            self._thread.start()

    def finish(self, seconds: float) -> None:
        """Read the rest of the log of a pod that has ended, for at most `seconds`."""
        self._over.set()
        if self._thread is not None:
            self._thread.join(seconds)
        self.stop()

    def stop(self) -> None:
        self._over.set()
        self._stopped.set()
        response = self._open
        if response is not None:
            with contextlib.suppress(OSError, ValueError, RuntimeError):  # the stream has just ended by itself
                response.shutdown()
        if self._thread is not None:
            self._thread.join(2)

    def _run(self, meta: Mapping[str, Any]) -> None:
        try:
            with closing(LogFile(self.log, meta["uid"])) as file:
                self._follow(meta["name"], file)
        except BaseException as error:
            self.error = error

    def _follow(self, pod: str, file: LogFile) -> None:
        pause, reported = FIRST_PAUSE, False
        while not self._stopped.is_set():
            # After the pod has ended, read once more, because its last lines may have come after the last read.
            last = self._over.is_set()
            try:
                pause = FIRST_PAUSE if self._read(pod, file) else pause
            except ApiError as refusal:
                if not reported and not refusal.missing:
                    reported = True
                    self.say(f"its log cannot be read now, and is asked for again: {refusal.message[:200]}")
            if last:
                return
            self._over.wait(pause)
            pause = min(pause * 2, LONGEST_PAUSE)

    def _read(self, pod: str, file: LogFile) -> int:
        """Read until the stream ends; returns the number of new lines."""
        query = {"follow": "true", "timestamps": "true", "container": CONTAINER}
        # sinceTime has a resolution of a second, so lines of that second come again, and lines_after skips them.
        # https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/#read-read-log-of-the-specified-pod
        if self._heard.at:
            query["sinceTime"] = f"{self._heard.at[:19]}Z"
        got, before = 0, self._heard
        with self.api.opened("GET", "pods", f"{pod}/log", query, seconds=(5.0, QUIET_SECONDS)) as response:
            self._open = response
            try:
                if self._stopped.is_set():  # stopped before there was a response to shut down
                    return got
                lines = (line for batch in self.api.batches(response, "pods") for line in batch)
                for position, text in lines_after(lines, before):
                    self._heard = position
                    if position > file.position:  # else an earlier process has written the line already
                        file.add(text, position)
                    self.on_line(text.decode("utf-8", "replace"))
                    got += 1
            finally:
                self._open = None
        return got
