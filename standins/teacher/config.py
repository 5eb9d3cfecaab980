"""Settings of the stand-in: delays, limits and faults of its server, and its further models."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from qinglan.config import Config, Fraction, Name, Seed


class Behaviour(Config):
    """Faults and delays that the stand-in shows its callers."""

    latency: float = Field(default=0.0, ge=0)
    """Seconds until an answer."""

    jitter: float = Field(default=0.0, ge=0)
    """Most further seconds until an answer, drawn at random."""

    error_rate: Fraction = 0.0
    """Share of calls without an answer: 429, 500, HTML, no choices, broken JSON, or silence."""

    silence: float = Field(default=30.0, ge=0)
    """Seconds until a call without an answer is closed."""

    requests_per_minute: int = Field(default=0, ge=0)
    """Requests in a minute above which a call is a 429 with Retry-After. 0 sets no limit."""

    batch_seconds: float = Field(default=0.0, ge=0)
    """Seconds until the first row of a batch is answered; latency, jitter and error rate are for live calls."""

    batch_faults: str = ""
    """Faults of the batches in turn, with commas between them: see batch_faults.py; `none` is no fault."""

    answer_formats: str = "json_schema,json_object,tool"
    """Forms of structured answers that this server takes, with commas between them; any other is a 400. A model with
    a name of DeepSeek takes no json_schema."""

    label_misses: Fraction = 0.1
    """Share of passages that answer a need and are judged irrelevant."""

    label_false_hits: Fraction = 0.02
    """Share of other passages that are judged relevant."""

    seed: Seed = 0
    """Seed of the faults."""


class Skill(Config):
    """Quality of a further model's rewrites, so that models of different quality can be compared."""

    skill: Fraction = 1.0
    """Share of questions that it rewrites as the tenant's own model does; others it returns unchanged."""

    refuses: Fraction = 0.0
    """Share of questions that it declines to rewrite."""

    refusal: Literal["field", "words", "filter"] = "words"
    """Form of a refusal: the message's own field, plain words, or a content filter."""

    thinks: bool = False
    """Its answers begin with <think>...</think>, as from a vLLM without a reasoning parser."""

    seed: Seed = 0
    """Seed of the questions at which it fails."""


class Variant(Skill):
    """A further model of the stand-in, on a tenant's knowledge base."""

    tenant: Name


class TeacherConfig(Config):
    """One stand-in server."""

    knowledge_bases: dict[Name, Path] = Field(min_length=1)
    """Knowledge bases by tenant; the tenant's name is the model's name."""

    vocabularies: dict[Name, Path] = {}
    """YAML files by tenant with the phrasings that mean each house term, for the judge of relevance."""

    variants: dict[str, Variant] = {}
    """Further models, by name. A name that a provider uses implies that provider's rules for parameters."""

    behaviour: Behaviour = Behaviour()
