"""Settings of the stand-in: its delay, its scores and its faults."""

from typing import Literal, get_args

from pydantic import Field

from qinglan.config import Config, Fraction, Positive

Fault = Literal["", "limited", "broken", "html", "nan", "missing", "twice", "stranger", "text"]
FAULTS = tuple(fault for fault in get_args(Fault) if fault)
"""429; 500; a page of HTML; a score of NaN; a document left out, twice, or unknown; a word as a score."""


class Behaviour(Config):
    model: str = "overlap"
    """Name of the model. In vLLM's dialect another name is a 404; in TEI's it is in /info."""

    latency: float = Field(default=0.0, ge=0)
    """Seconds until an answer."""

    fault: Fault = ""
    """Fault of its answers: limited, broken, html, nan, missing, twice, stranger or text; empty for none."""

    error_rate: Fraction = 1.0
    """Share of requests with the fault; the same requests each time."""

    sharpness: float = Field(default=12.0, gt=0)
    """Log-odds between no shared word and all of them; high means overconfident scores."""

    max_batch: Positive = 32
    """Most documents in a request of TEI's dialect; more are a 413."""
