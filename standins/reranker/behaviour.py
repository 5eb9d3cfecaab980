"""Settings of the stand-in: its delay, its scores and its faults."""

from typing import Literal, get_args

from pydantic import Field

from qinglan.config import Config, Fraction, Positive

Fault = Literal["", "limited", "broken", "html", "nan", "missing", "twice", "stranger", "text"]
FAULTS = tuple(fault for fault in get_args(Fault) if fault)
"""Faults: status 429, status 500, an HTML page, a NaN score, a document that is missing, repeated or unknown, and a
text as a score."""


class Behaviour(Config):
    model: str = "overlap"
    """Name of the model. In vLLM's protocol a request for another model gets status 404; in TEI's it is in /info."""

    latency: float = Field(default=0.0, ge=0)
    """Seconds until an answer."""

    fault: Fault = ""
    """Fault of the answers: limited, broken, html, nan, missing, twice, stranger or text; empty for none."""

    error_rate: Fraction = 1.0
    """Share of requests that get the fault; always the same requests."""

    sharpness: float = Field(default=12.0, gt=0)
    """Difference of the log-odds between no shared and all shared words; a high value gives overconfident scores."""

    max_batch: Positive = 32
    """Highest number of documents in a request of TEI's protocol; a larger request gets status 413."""
