"""Settings of the validate stage."""

from qinglan.config import Config, Fraction, Positive
from qinglan.rag.retrieval import RetrievalConfig
from qinglan.rows.splits import SplitConfig


class ValidateConfig(Config):
    """Retrieval with the rewrites, and the rule by which a rewrite is accepted for training."""

    retrieval: RetrievalConfig = RetrievalConfig()
    """Retrieval settings of question and rewrite; a run sets its own."""

    splits: SplitConfig = SplitConfig()
    """Shares and seed of convert's splits. Comparisons in this stage leave out the rows of the locked test."""

    quality_threshold: Fraction = 0.6
    """Lowest score of an accepted rewrite: the `reranker_score` of its first shown passage against the row's need."""

    need_prompt: str = ""
    """Judge's prompt for a row's need: a text, or a .txt file beside the profile. If empty, the prompt in
    qinglan/prompts is used."""

    rows_under_way: Positive = 64
    """Number of rows held in memory at once. The gateway limits the retrievals."""

    allow_worse_teacher: bool = False
    """Permission to train on a teacher whose rewrites find less than the plain questions. Without it, the run stops
    after this stage if the paired interval of the teacher's gain in "gold passage first" is below zero. If no row has
    gold, the gain in score is compared instead."""
