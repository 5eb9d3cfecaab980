"""Settings of the augment stage."""

from pydantic import Field

from qinglan.config import Config, Fraction, Positive, Seed
from qinglan.rag.retrieval import RetrievalConfig


class AugmentConfig(Config):
    """How the teacher writes further rows to learn from: rewrites in hindsight, and questions from passages."""

    tenant_id: str = ""
    """The tenant of a knowledge base that is a single file: the run's."""

    retrieval: RetrievalConfig = RetrievalConfig()
    """How rewrites retrieve: the run's."""

    hindsight_calls: int = Field(default=5_000, ge=0)
    """Paid calls for rewrites in hindsight, at most: one for each training row where the teacher's rewrite does not
    find a relevant passage first. 0 asks for none."""

    pseudo_calls: int = Field(default=600, ge=0)
    """Paid calls for questions written from passages, at most: one for each question. 0 asks for none."""

    questions_per_passage: Positive = 3
    """Questions written from one passage, each in the manner of another training row's user."""

    anchor_share: float = Field(default=0.1, ge=0, le=0.5)
    """Share of PPO's training prompts that are such questions, at most, so that it unlearns nothing of them."""

    least_kept: Fraction = 0.1
    """Share of the first 30 answers of a kind that must be of use; below it no more of that kind are paid for."""

    near_duplicate: float = Field(default=0.8, gt=0, le=1)
    """Questions and passages so alike to those of dev and test are left out: as convert's."""

    passage_characters: Positive = 1_500
    """Characters of a passage that the teacher reads, the first ones."""

    seed: Seed = 42
    """Seed that draws rows, passages and examples."""

    @property
    def asks(self) -> bool:
        """True if the teacher is asked for further rows."""
        return bool(self.hindsight_calls or self.pseudo_calls)
