"""The two kinds of models that are released, with the texts of their model cards."""

from collections.abc import Mapping
from typing import NamedTuple


class Dataset(NamedTuple):
    """A data set of training or evaluation."""

    digest_path: tuple[str, ...]
    """Path of the digest among the evaluation's digests."""

    stage: str
    """Stage that counted the rows."""

    counts: tuple[str, ...]
    """Names of the stage's counts that add up to the rows."""


class ModelKind(NamedTuple):
    """Texts and data sets of a kind of model."""

    datasets: Mapping[str, Dataset]
    """Data sets of the model, by their names on the card."""

    approach: str
    """Learning approach, as one of the values that CycloneDX allows."""

    task: str
    intended_use: str
    users: tuple[str, ...]
    limits: tuple[str, ...]
    risks: Mapping[str, str]
    """Mitigation of each risk, by the description of the risk."""


REWRITER = ModelKind(
    datasets={
        "SFT rows (train and dev)": Dataset(("training", "sft"), "convert", ("sft_train", "sft_dev")),
        "PPO rows (train and dev)": Dataset(("training", "ppo"), "convert", ("ppo_train", "ppo_dev")),
        "locked test": Dataset(("test",), "convert", ("test",)),
    },
    approach="reinforcement-learning",
    task="text rewriting: a follow-up question of a conversation becomes a query that stands alone",
    intended_use=(
        "Rewrites the last question of a conversation into one search query for the same tenant's retrieval service."
    ),
    users=("A retrieval service of the tenant, behind the house's own application.",),
    limits=(
        "Trained and judged on this tenant's questions and knowledge base alone; not judged on another's.",
        "Chinese questions; other languages have not been judged.",
        "It writes a query and answers nothing: what the search finds decides what a user reads.",
        "The teacher's rewrites are its model: what the teacher gets wrong it may have learned.",
    ),
    risks={
        "A rewrite names a product, a number or a condition that the user has not mentioned.":
            "The gate bounds the share of invented numbers; serving answers with the question itself on any failure.",
        "Conversations can hold what people say of their health.":
            "Statements and this card hold digests and counts, and no text of any user.",
    },
)  # fmt: skip

STYLE = ModelKind(
    datasets={
        "train": Dataset(("rows", "train"), "prepare", ("train",)),
        "dev": Dataset(("rows", "dev"), "prepare", ("dev",)),
        "locked test": Dataset(("rows", "test"), "prepare", ("test",)),
    },
    approach="supervised",
    task="text classification: the manner of an answer",
    intended_use="Tells the manner of a service's answers, to review them or as a part of a reward in training.",
    users=("People who review a service's answers, and trainings with its probabilities in their reward.",),
    limits=(
        "Trained and judged on answers of the house's own service; on others it has not been judged.",
        "It reads manner and not truth: a wrong answer in the right manner is called right.",
        "A training that is rewarded with it will learn what it cannot see; judge such a model by people.",
    ),
    risks={
        "A label is taken as a verdict on the person who wrote the answer.":
            "It gives probabilities; the report shows how many answers are left to people at each confidence.",
    },
)  # fmt: skip

MODEL_KINDS = {"rewriter": REWRITER, "style": STYLE}
