"""Record of a request under way, for its log line and its metrics, without any user's text."""

import re
import sys
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import orjson

from serving.rewriter.config import RequestProtocol

REQUEST_ID = "x-request-id"
USABLE_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")


@dataclass
class RequestRecord:
    """Facts about one request, which are filled in while it is answered."""

    request_id: str
    protocol: RequestProtocol
    shadow: bool = False
    """True for a request of the shadow, which is not counted as a user's request and is not in the payload log."""

    questions: int = 0
    trimmed: int = 0
    """Number of questions whose history was too long, so that its oldest turns were left out."""

    prompt_tokens: int = 0
    written_tokens: int = 0
    guards: list[str] = field(default_factory=list)
    why: str = ""
    """Message about the cause of a failure; "" if there was none."""


CURRENT_REQUEST: ContextVar[RequestRecord | None] = ContextVar("request", default=None)


def current_request() -> RequestRecord:
    """Return the record of the current request; outside a request, such as in a warm-up, a new record."""
    return CURRENT_REQUEST.get() or RequestRecord(make_request_id(""), "v1")


def make_request_id(header: str) -> str:
    """Use the caller's request id if it is safe in a log; otherwise make a new id."""
    return header if USABLE_ID.fullmatch(header) else uuid4().hex


def log_entry(record: RequestRecord, version: str, status: int, outcome: str, seconds: float) -> dict[str, Any]:
    """Build the log entry of an answered, refused or failed request."""
    entry: dict[str, Any] = {
        "request_id": record.request_id,
        "protocol": record.protocol,
        "version": version,
        "status": status,
        "outcome": outcome,
        "ms": round(seconds * 1000, 1),
        "questions": record.questions,
        "prompt_tokens": record.prompt_tokens,
        "written_tokens": record.written_tokens,
    }
    optional = {"trimmed": record.trimmed, "guards": record.guards, "why": record.why}
    return entry | {name: value for name, value in optional.items() if value}


def write_log(record: dict[str, Any]) -> None:
    """Write a record to stderr as one line of JSON, with the time."""
    at = datetime.now(UTC).isoformat(timespec="milliseconds")
    sys.stderr.write(orjson.dumps({"at": at, **record}).decode() + "\n")
