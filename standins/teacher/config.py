"""Settings of the stand-in teacher: delays, limits and faults of its server, and its additional models."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from qinglan.config import Config, Fraction, Name, Seed


class Behaviour(Config):
    """Delays, limits and faults of the stand-in's answers."""

    latency: float = Field(default=0.0, ge=0)
    """Seconds until an answer."""

    jitter: float = Field(default=0.0, ge=0)
    """Largest additional random delay of an answer, in seconds."""

    error_rate: Fraction = 0.0
    """Share of calls that fail: status 429, status 500, HTML, no choices, broken JSON, or silence."""

    silence: float = Field(default=30.0, ge=0)
    """Seconds until a call with the fault `silence` ends, with status 500."""

    requests_per_minute: int = Field(default=0, ge=0)
    """Limit of requests per minute, above which a call gets status 429 with Retry-After; 0 for no limit."""

    batch_seconds: float = Field(default=0.0, ge=0)
    """Seconds until the first row of a batch is answered; `latency`, `jitter` and `error_rate` are for live calls."""

    batch_faults: str = ""
    """Faults of the batches in their order, with commas between them (see batch_faults.py); `none` for no fault."""

    answer_formats: str = "json_schema,json_object,tool"
    """Formats of structured answers that this server supports, with commas between them; others get status 400.
    Models with a name of DeepSeek do not support `json_schema`."""

    label_misses: Fraction = 0.1
    """Share of the passages that answer a need but are judged irrelevant."""

    label_false_hits: Fraction = 0.02
    """Share of the passages that do not answer a need but are judged relevant."""

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


class TeacherConfig(Config):
    """Settings of one stand-in server."""

    knowledge_bases: dict[Name, Path] = Field(min_length=1)
    """Knowledge bases by tenant; the name of a tenant is also the name of its model."""

    vocabularies: dict[Name, Path] = {}
    """YAML files by tenant with users' phrasings of each company term, for the judge of relevance."""

    variants: dict[str, Variant] = {}
    """Additional models by name. A provider's rules for parameters apply to a model with a name of this provider."""

    behaviour: Behaviour = Behaviour()
