"""Settings of the augment stage."""

from pydantic import Field

from qinglan.config import Config, Fraction, Positive, Seed
from qinglan.rag.retrieval import RetrievalConfig


class AugmentConfig(Config):
    """Further rows by the teacher: rewrites in hindsight, and questions from passages."""

    tenant_id: str = ""
    """Tenant of a knowledge base that is a single file; a run sets its own."""

    retrieval: RetrievalConfig = RetrievalConfig()
    """Retrieval settings for the teacher's rewrites; a run sets its own."""

    hindsight_calls: int = Field(default=5_000, ge=0)
    """Highest number of paid calls for rewrites in hindsight; 0 makes none. A call is for one training row whose
    rewrite by the teacher does not find a relevant passage first."""

    pseudo_calls: int = Field(default=600, ge=0)
    """Highest number of paid calls for questions written from passages, one call per question; 0 makes none."""

    questions_per_passage: Positive = 3
    """Number of questions written from one passage, each in the style of another training row's user."""

    anchor_share: float = Field(default=0.1, ge=0, le=0.5)
    """Highest share of questions from passages in PPO's training prompts, so that PPO does not unlearn them."""

    least_kept: Fraction = 0.1
    """Lowest usable share of the first 30 answers of a kind; below it, no more answers of that kind are paid for."""

    near_duplicate: float = Field(default=0.8, gt=0, le=1)
    """Similarity to a question or passage of dev or test from which a new one is left out; see
    `convert.near_duplicate`."""

    passage_characters: Positive = 1_500
    """Characters of a passage that the teacher reads, from its beginning."""

    seed: Seed = 42
    """Seed that draws rows, passages and examples."""

    @property
    def asks(self) -> bool:
        """True if the teacher is asked for further rows."""
        return bool(self.hindsight_calls or self.pseudo_calls)
