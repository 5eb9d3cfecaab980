"""How the stand-in behaves: as slow, as sure of itself and as broken as it is told to be."""

from typing import Literal, get_args

from pydantic import Field

from qinglan.config import Config, Fraction, Positive

Fault = Literal["", "limited", "broken", "html", "nan", "missing", "twice", "stranger", "text"]
FAULTS = tuple(fault for fault in get_args(Fault) if fault)
"""429; 500; a page of HTML; a score of NaN; a document left out, named twice, or never asked about; words."""


class Behaviour(Config):
    model: str = "overlap"
    """In vLLM's dialect any other is a 404; in TEI's it is what /info names."""

    latency: float = Field(default=0.0, ge=0)
    """Seconds that a request takes."""

    fault: Fault = ""
    error_rate: Fraction = 1.0
    """Share of requests that have the fault, where there is one; the same requests each time."""

    sharpness: float = Field(default=12.0, gt=0)
    """Log-odds from no shared word to all of them: high is a model that is surer of itself than it is right."""

    max_batch: Positive = 32
    """In TEI's dialect, documents in a request; more are a 413."""
