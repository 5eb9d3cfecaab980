"""What the evaluation and its gate can be told."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from qinglan.config import Config, Fraction, Positive
from qinglan.rag.retrieval import RetrievalConfig


class GateConfig(Config):
    """What a candidate must show before it may serve. Whatever cannot be read holds it."""

    rows: Positive = 200
    """Fewer paired queries prove nothing: at 200 one share alone is uncertain by 4.5 points."""

    p: Fraction = 0.05
    """The permutation test's p of candidate against teacher must be below."""

    margin: Fraction = 0.01
    """By so much nDCG@10 and recall@10 may at most be worse than the teacher's, overall and per tenant."""

    length_ratio: float = Field(default=1.5, gt=0)
    """The candidate's mean length over the teacher's, at most."""

    copied: Fraction = 0.05
    """Share of rewrites that copy the history or a passage, at most."""

    invented: Fraction = 0.02
    """Share of rewrites with a number that nobody mentioned, at most."""

    zero_hit: Fraction = 0.01
    """By so much the share of queries that find nothing may at most be above the teacher's."""

    alike: float = Field(default=0.8, gt=0, le=1)
    """A test row so like one of training or selection leaked (three-character pieces of question and history)."""

    cost_ratio: float = Field(default=1.0, gt=0)
    """The candidate's cost per 1,000 over the teacher's, at most."""


class EvaluateConfig(Config):
    """How systems are compared on the locked test."""

    retrieval: RetrievalConfig = RetrievalConfig()
    """How every system's query retrieves: the run's."""

    batch: Positive = 64
    """Questions that a student rewrites at once."""

    examined_rows: Positive = 300
    """Rows whose rewrites the examiner scores, whole conversations drawn by seed: each costs a call a system."""

    agreement_rows: Positive = 60
    """Of those, rows that the training's judge scores too, to see how far the two agree."""

    latency_rows: Positive = 50
    """Rows that a student rewrites one by one, to time it."""

    rewriter_urls: dict[Literal["sft", "rl"], str] = {}
    """Where a student is served (V1 protocol), and timed there; others are served for it on this machine."""

    gpu_hour_price: float = Field(default=2.0, ge=0)
    """Of the machine that serves the student, in the currency of the prices. It is set, not measured."""

    slices: Path | None = None
    """JSONL with an id and yes-or-no properties of each question, for the report's table alone."""

    interesting: Fraction = 0.03
    """The smallest difference in top-1 worth proving, for the power table; the plan hopes for 88 % against 85 %."""

    draws: Positive = 10_000
    """Of the bootstrap and of the permutation test."""

    seed: int = 0
    """Of draws and samples."""

    examples: Positive = 6
    """Queries shown side by side for each of won, lost and still failing."""

    blind_rows: Positive = 50
    """Rows in the sheet that people score without knowing who wrote what."""

    gate: GateConfig = GateConfig()
    """When a candidate may serve."""
