"""Settings of the validate stage."""

from qinglan.config import Config, Fraction, Positive
from qinglan.rag.retrieval import RetrievalConfig
from qinglan.rows.splits import SplitConfig


class ValidateConfig(Config):
    """How rewrites are searched with, and when one is good enough to learn from."""

    retrieval: RetrievalConfig = RetrievalConfig()
    """Retrieval settings of question and rewrite; a run sets its own."""

    splits: SplitConfig = SplitConfig()
    """Shares and seed of convert's splits. Rows of its locked test are left out of the comparisons here."""

    quality_threshold: Fraction = 0.6
    """Lowest reranker_score, against the need, of the first shown passage of an accepted rewrite."""

    need_prompt: str = ""
    """Judge's prompt for a row's need: a text, or a .txt file beside the profile; empty takes qinglan/prompts."""

    rows_under_way: Positive = 64
    """Rows held in memory at once. The gateway limits the retrievals."""

    allow_worse_teacher: bool = False
    """Permission to train on a teacher whose rewrites find less than the plain questions. Without it the run stops
    after this stage if the paired interval of "gold passage first" (without gold, of the score) is below zero."""
