"""Settings of the augment stage."""

from pydantic import Field

from qinglan.config import Config, Fraction, Positive, Seed
from qinglan.rag.retrieval import RetrievalConfig


class AugmentConfig(Config):
    """Further training rows by the teacher: second rewrites with the passage in view, and questions from passages."""

    tenant_id: str = ""
    """Tenant of a knowledge base that is a single file; a run sets its own."""

    retrieval: RetrievalConfig = RetrievalConfig()
    """Retrieval settings for the teacher's rewrites; a run sets its own."""

    hindsight_calls: int = Field(default=5_000, ge=0)
    """Highest number of paid calls for rewrites in hindsight (with the relevant passage in view); 0 makes none. Each
    call is for a training row for which the teacher's first rewrite does not rank a relevant passage first."""

    pseudo_calls: int = Field(default=600, ge=0)
    """Highest number of paid calls for questions written from passages, one call per question; 0 makes none."""

    questions_per_passage: Positive = 3
    """Number of questions written from one passage. Each imitates the style of a different training row."""

    anchor_share: float = Field(default=0.1, ge=0, le=0.5)
    """Highest share of questions from passages in PPO's training prompts, so that PPO does not unlearn them."""

    least_kept: Fraction = 0.1
    """Lowest share of usable answers among the first 30 of a kind (rewrites or questions). Below it, no more answers
    of that kind are paid for."""

    near_duplicate: float = Field(default=0.8, gt=0, le=1)
    """Similarity from which a new question or passage counts as too similar to one of dev or test, and is left out;
    see `convert.near_duplicate`."""

    passage_characters: Positive = 1_500
    """Characters of a passage that the teacher reads, from its beginning."""

    seed: Seed = 42
    """Seed that draws rows, passages and examples."""

    @property
    def asks(self) -> bool:
        """True if the teacher is asked for further rows."""
        return bool(self.hindsight_calls or self.pseudo_calls)
