"""Store answered questions for audits, by a thread that empties a bounded queue. Answers never wait for the store.

    payloads/2026-11-22/103000-<8 letters>-000001.jsonl     object in the store, with a line for each question
    {"at", "request_id", "version", "tenant", "question_sha256", ..., "rewrite_sha256", "fallback", "outcome"}

The log contains texts only if the settings say so. A short text can still be guessed from its digest.
"""

import hashlib
import queue
import secrets
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import orjson

from qinglan.prompts import PromptInput
from qinglan.store import open_store
from serving.rewriter.config import PayloadConfig
from serving.rewriter.request_record import write_log

MOST_WAITING = 4096
"""Highest number of waiting records; further records are dropped and counted."""

MOST_TOGETHER = 1000
FLUSH_SECONDS = 5.0
CLOSING_SECONDS = 10.0
FIELDS = ("question", "user_profile", "history_summary")

CountPayloads = Callable[[str, int], None]
"""Function that counts records by outcome (kept, dropped or failed)."""


def is_sampled(request_id: str, share: float) -> bool:
    """True if a request belongs to the sample: about `share` of all ids, always the same ids."""
    return int.from_bytes(hashlib.sha256(request_id.encode()).digest()[:8]) < share * 2**64


def payload_record(prompt_input: PromptInput, rewrite: str, text: bool, **about: str) -> dict[str, Any]:
    """Build the record of one question; `rewrite` is "" if there was no answer."""
    texts = {**{name: str(getattr(prompt_input, name)) for name in FIELDS}, "rewrite": rewrite}
    digests = {
        f"{name}_sha256": hashlib.sha256(value.encode()).hexdigest() if value else "" for name, value in texts.items()
    }
    at = datetime.now(UTC).isoformat(timespec="milliseconds")
    return {"at": at, **about, "tenant": prompt_input.tenant_id, **digests, **(texts if text else {})}


class PayloadLog:
    """Queue of records from the event loop, which a thread writes to the store."""

    def __init__(self, config: PayloadConfig, count: CountPayloads) -> None:
        self.config, self._count = config, count
        self._backend = open_store(config.store).prepare().backend
        self._waiting: queue.Queue[dict[str, Any] | None] = queue.Queue(MOST_WAITING)
        self._writer_id, self._written = secrets.token_hex(4), 0
        self._thread = threading.Thread(target=self._work, name="payloads", daemon=True)
        self._thread.start()

    def add(self, record: dict[str, Any]) -> None:
        """Add a record to the queue without waiting; if the queue is full, drop the record."""
        try:
            self._waiting.put_nowait(record)
        except queue.Full:
            self._count("dropped", 1)

    def close(self) -> None:
        """Write the queued records within a time limit, and stop the thread."""
        try:
            self._waiting.put(None, timeout=1.0)
        except queue.Full:
            return
        self._thread.join(CLOSING_SECONDS)

    def _work(self) -> None:
        """Write the records that arrive within FLUSH_SECONDS as one batch, again and again. None ends the thread."""
        record = self._waiting.get()
        while record is not None:
            # Each object in the store holds the records of some seconds, so that there are few objects.
            until, batch = time.monotonic() + FLUSH_SECONDS, [record]
            try:
                while len(batch) < MOST_TOGETHER:
                    record = self._waiting.get(timeout=max(0.0, until - time.monotonic()))
                    if record is None:
                        break
                    batch.append(record)
            except queue.Empty:
                pass
            self._write(batch)
            record = self._waiting.get() if record is not None else None

    def _write(self, batch: list[dict[str, Any]]) -> None:
        self._written += 1
        now = datetime.now(UTC)
        key = f"payloads/{now:%Y-%m-%d}/{now:%H%M%S}-{self._writer_id}-{self._written:06}.jsonl"
        try:
            lines = b"".join(orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE) for record in batch)
            self._backend.create(key, lines)
        except Exception as error:  # of any kind: if the thread ended, all later records would be lost
            self._count("failed", len(batch))
            write_log({"event": "payload log", "failed": len(batch), "why": str(error)})
        else:
            self._count("kept", len(batch))
