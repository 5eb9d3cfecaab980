"""Write the state of a running training to files in the run's folder, and send it to the run's gateway."""

import os
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import orjson
from pydantic import ValidationError

from qinglan.files.files import atomic_write
from qinglan.live.page import trainings_page
from qinglan.live.snapshot import TRAININGS_PATH, TrainingSnapshot
from qinglan.pages.curves import CURVE_FILE, curve_svg
from qinglan.terminal import say

LIVE_VARIABLE = "QINGLAN_LIVE"
"""Environment variable with the folder for live files; `qinglan run` sets it."""

PAGE_FILE, SNAPSHOT_FILE = "index.html", "training.json"
FILES_EVERY, SENT_EVERY = 1.0, 5.0
"""Shortest time in seconds between two writes of files, and between two messages to a gateway."""

HEARTBEAT = 30.0
"""Seconds after which an unchanged state is written and sent again, to show that the training is alive."""

RETRY_AFTER = 60.0
"""Seconds until the next attempt after a failed write or message."""

SEND_TIMEOUT = 2.0

Rows = Sequence[Mapping[str, float]]
Write = Callable[[TrainingSnapshot, Rows], None]


class Outlet:
    """Destination of a training's state: files or a gateway. A failure is printed once, and the training
    continues."""

    def __init__(self, label: str, every: float, write: Write) -> None:
        self._label, self._every, self._write = label, every, write
        self._next = self._last = 0.0
        self._news: Hashable = None
        self._failed = False

    def due(self, now: float, news: Hashable) -> bool:
        """True if the state should be written: since the last write `news` has changed, or HEARTBEAT seconds have
        passed.

        It is False until `every` seconds, or RETRY_AFTER after a failure, have passed since the last write.
        """
        return now >= self._next and (news != self._news or now >= self._last + HEARTBEAT)

    def write(self, now: float, news: Hashable, snapshot: TrainingSnapshot, rows: Rows) -> None:
        self._news, self._last, self._next = news, now, now + self._every
        try:
            self._write(snapshot, rows)
        except OSError as error:
            self._next = now + RETRY_AFTER
            if not self._failed:
                self._failed = True
                say(f"[{self._label}] warn: {error} Training goes on; it is tried again every {RETRY_AFTER:.0f} s.")


def outlets(stage: str, gateway_url: str) -> list[Outlet]:
    """Create the outlets of this process: one for $QINGLAN_LIVE if it is set, one for the gateway if there is one."""
    chosen = []
    if folder := os.environ.get(LIVE_VARIABLE):
        chosen.append(Outlet(f"{stage} live files", FILES_EVERY, file_writer(Path(folder))))
    if gateway_url:
        chosen.append(Outlet(f"{stage} live view", SENT_EVERY, gateway_sender(gateway_url)))
    return chosen


def file_writer(root: Path) -> Write:
    """Create the function that writes a training's files, and the page of all trainings in the folder."""

    def write(snapshot: TrainingSnapshot, rows: Rows) -> None:
        folder = root / snapshot.stage
        alarms = (alarm.model_dump() for alarm in snapshot.alarms)
        _write(folder / "metrics.jsonl", _json_lines(rows))
        _write(folder / "alarms.jsonl", _json_lines(alarms))
        _write(folder / "log.txt", "".join(line + "\n" for line in snapshot.log).encode())
        _write(folder / CURVE_FILE, curve_svg(snapshot.title, snapshot.curves).encode())
        _write(folder / SNAPSHOT_FILE, snapshot.model_dump_json().encode())
        _write(root / PAGE_FILE, trainings_page(read_trainings(root)).encode())

    return write


def read_trainings(root: Path) -> list[TrainingSnapshot]:
    """Read the trainings in a run's live folder. A snapshot in the format of another release is left out."""
    snapshots = []
    for path in root.glob(f"*/{SNAPSHOT_FILE}"):
        with suppress(ValidationError):  # an error would end the training that writes the page
            snapshots.append(TrainingSnapshot.model_validate_json(path.read_bytes()))
    return snapshots


def gateway_sender(gateway_url: str) -> Write:
    """Create the function that sends a training's snapshot to a gateway."""
    import httpx2

    from qinglan.http.http_client import sync_client

    url = gateway_url.rstrip("/") + TRAININGS_PATH

    def send(snapshot: TrainingSnapshot, _: Rows) -> None:
        try:
            body = snapshot.model_dump_json()
            with sync_client(timeout=SEND_TIMEOUT) as http:
                http.post(url, content=body).raise_for_status()
        except httpx2.HTTPError as error:
            raise OSError(f"{url}: {str(error) or type(error).__name__}.") from error

    return send


def _json_lines(rows: Iterable[Mapping[str, object]]) -> bytes:
    return b"".join(orjson.dumps(row) + b"\n" for row in rows)


def _write(path: Path, content: bytes) -> None:
    with atomic_write(path, durable=False) as partial:
        partial.write_bytes(content)
