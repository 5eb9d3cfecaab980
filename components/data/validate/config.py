"""Settings of the validate stage."""

from pydantic import Field

from qinglan.config import Config, Fraction, Name, Positive


class ValidateConfig(Config):
    """How rewrites are put through the RAG, and when one is good enough to learn from."""

    kb_name: Name = "default"
    """Which of the tenant's knowledge bases."""

    top_k: int = Field(default=5, ge=1, le=100)
    """Passages asked for, as the plan does."""

    score_threshold: Fraction = 0.5
    """The service's own cut, by the score against the query; 0 keeps whatever it finds."""

    quality_threshold: Fraction = 0.6
    """A rewrite is accepted when its first passage's reranker_score against the need reaches this."""

    rows_under_way: Positive = 64
    """Rows held in memory at once. The gateway, not this, limits the retrievals."""
