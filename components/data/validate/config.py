"""Settings of the validate stage."""

from qinglan.config import Config, Fraction, Positive
from qinglan.rag.retrieval import RetrievalConfig
from qinglan.rows.splits import SplitConfig


class ValidateConfig(Config):
    """How rewrites are put through the RAG, and when one is good enough to learn from."""

    retrieval: RetrievalConfig = RetrievalConfig()
    """How question and rewrite retrieve: the run's."""

    splits: SplitConfig = SplitConfig()
    """Shares and seed of the splits, always those of convert: rows of its locked test are left out of comparisons."""

    quality_threshold: Fraction = 0.6
    """A rewrite is accepted when its first shown passage's reranker_score against the need reaches this."""

    need_prompt: str = ""
    """The judge's prompt for a row's need: a text, or a .txt file beside the profile; empty takes qinglan/prompts."""

    rows_under_way: Positive = 64
    """Rows held in memory at once. The gateway, not this, limits the retrievals."""

    allow_worse_teacher: bool = False
    """Permission to train on a teacher whose rewrites find less than the plain questions. Without it the run stops
    after this stage, if the paired interval of gold passage first (or of the score, without gold) is below zero."""
