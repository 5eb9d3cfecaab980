"""How the stand-in behaves: as fast, as busy and as unreliable as it is told to be."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from qinglan.config import Config, Fraction, Name, Seed


class Behaviour(Config):
    """Faults and delays that the stand-in shows its callers."""

    latency: float = Field(default=0.0, ge=0)
    """Seconds that an answer takes."""

    jitter: float = Field(default=0.0, ge=0)
    """Up to so many seconds more."""

    error_rate: Fraction = 0.0
    """Share of calls that get no answer: 429, 500, HTML, no choices, broken JSON, or silence."""

    silence: float = Field(default=30.0, ge=0)
    """Seconds until a call that gets nothing is hung up on."""

    requests_per_minute: int = Field(default=0, ge=0)
    """Above it: 429 with Retry-After. 0 sets no limit."""

    batch_seconds: float = Field(default=0.0, ge=0)
    """How long a batch waits before its first row is answered; latency, jitter and error rate are of live calls."""

    batch_faults: str = ""
    """A fault for each batch in turn, separated by commas: see batch_faults.py; `none` is no fault."""

    answer_formats: str = "json_schema,json_object,tool"
    """Forms of structured answers that this server takes, separated by commas; any other is a 400. A model whose name
    is DeepSeek's takes no json_schema."""

    label_misses: Fraction = 0.1
    """Share of passages that answer a need and are judged irrelevant."""

    label_false_hits: Fraction = 0.02
    """Share of other passages that are judged relevant."""

    seed: Seed = 0
    """Another seed has its faults at other calls."""


class Skill(Config):
    """How well a further model rewrites, so that models can be compared that differ."""

    skill: Fraction = 1.0
    """Share of questions that it rewrites as the tenant's own model does; the others it gives back as they were."""

    refuses: Fraction = 0.0
    """Share of questions that it declines to rewrite."""

    refusal: Literal["field", "words", "filter"] = "words"
    """How it declines: in the message's own field, in plain words, or by a content filter."""

    thinks: bool = False
    """Its answers begin with <think>...</think>, as from a vLLM without a reasoning parser."""

    seed: Seed = 0
    """Another seed fails at other questions."""


class Variant(Skill):
    """A further model of the stand-in, on a tenant's knowledge base."""

    tenant: Name


class TeacherConfig(Config):
    """One stand-in server."""

    knowledge_bases: dict[Name, Path] = Field(min_length=1)
    """By tenant; the tenant's name is the model's."""

    vocabularies: dict[Name, Path] = {}
    """By tenant, a YAML file with the phrasings that mean each house term, for the judge of relevance."""

    variants: dict[str, Variant] = {}
    """Further models, by name. A name that a provider uses brings that provider's rules for parameters."""

    behaviour: Behaviour = Behaviour()
    host: str = "127.0.0.1"
    port: int = Field(default=8100, ge=0, le=65535)
    """0 takes a free one."""
