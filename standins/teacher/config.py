"""Settings of the stand-in teacher: delays, limits and faults of its server, and its additional models."""

from typing import Literal

from pydantic import Field

from qinglan.config import Config, Fraction, Name, Seed

BatchFault = Literal[
    "none", "validation", "quota", "expired", "cancelled", "missing", "twice", "stranger", "broken", "refused",
    "garbled",
]  # fmt: skip
"""Fault of a batch.

validation  one line is refused, so that no row is run
quota       the account's limit of waiting tokens is exceeded, so that no row is run
expired     half of the rows are answered; each other row has an error line
cancelled   half of the rows are answered; the other rows have no line
missing, twice, stranger    one row has no line, two lines, or a further line for an unknown row
broken, refused, garbled    one row has status 500, status 400, or a line that is not JSON
"""


class Behaviour(Config):
    """Delays, limits and faults of the stand-in's answers."""

    latency: float = Field(default=0.0, ge=0)
    """Seconds until an answer."""

    jitter: float = Field(default=0.0, ge=0)
    """Largest additional random delay of an answer, in seconds."""

    error_rate: Fraction = 0.0
    """Share of calls that fail: status 429, status 500, HTML, no choices, or broken JSON."""

    requests_per_minute: int = Field(default=0, ge=0)
    """Limit of requests per minute, above which a call gets status 429 with Retry-After; 0 for no limit."""

    batch_seconds: float = Field(default=0.0, ge=0)
    """Seconds until the first row of a batch is answered; `latency`, `jitter` and `error_rate` are for live calls."""

    batch_fault: BatchFault = "none"
    """Fault of the first batch, such as `expired`; later batches have none."""

    answer_formats: str = "json_schema,json_object,tool"
    """Formats of structured answers that this server supports, with commas between them; others get status 400.
    Models with a name of DeepSeek do not support `json_schema`."""

    seed: Seed = 0
    """Seed of the faults."""


class Skill(Config):
    """Quality of an additional model's rewrites, so that models of different quality can be compared."""

    skill: Fraction = 1.0
    """Share of questions that the model rewrites like the tenant's own model; it returns others unchanged."""

    refuses: Fraction = 0.0
    """Share of questions that the model declines to rewrite."""

    refusal: Literal["field", "words", "filter"] = "words"
    """Form of a refusal: `field` for `message.refusal`, `words` for plain words, `filter` for a content filter."""

    thinks: bool = False
    """True if answers begin with <think>...</think>, as from a vLLM without a reasoning parser."""

    seed: Seed = 0
    """Seed that decides at which questions the model fails."""


class Variant(Skill):
    """Additional model of the stand-in, on a tenant's knowledge base."""

    tenant: Name
