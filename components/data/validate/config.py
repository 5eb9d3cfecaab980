"""Settings of the validate stage."""

from qinglan.config import Config, Fraction, Positive
from qinglan.rag.retrieval import RetrievalConfig
from qinglan.rows.splits import SplitConfig


class ValidateConfig(Config):
    """Retrieval with the rewrites, and rule for rewrites that are good enough to learn from."""

    retrieval: RetrievalConfig = RetrievalConfig()
    """Retrieval settings of question and rewrite; a run sets its own."""

    splits: SplitConfig = SplitConfig()
    """Shares and seed of convert's splits. Comparisons in this stage leave out the rows of the locked test."""

    quality_threshold: Fraction = 0.6
    """Lowest reranker_score of an accepted rewrite. It is the first shown passage's, against the row's need."""

    need_prompt: str = ""
    """Judge's prompt for a row's need: a text, or a .txt file beside the profile. If empty, the prompt in
    qinglan/prompts is used."""

    rows_under_way: Positive = 64
    """Number of rows held in memory at once. The gateway limits the retrievals."""

    allow_worse_teacher: bool = False
    """Permission to train on a teacher whose rewrites find less than the plain questions. Without it the run stops
    after this stage if the paired interval of "gold passage first" is below zero. Without gold, the score is compared
    instead."""
