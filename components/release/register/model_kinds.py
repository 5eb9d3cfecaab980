"""The two kinds of model that are released: how each is judged, and what its card says whatever the figures are."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from components.evaluation.rewriter import gate as rewriter_gate
from components.evaluation.rewriter.config import GateConfig
from components.evaluation.style import gate as style_gate
from components.evaluation.style.config import GateStyleConfig
from qinglan.errors import DataError
from qinglan.verdict import Verdict

Evaluation = Mapping[str, Any]


class ModelKind(NamedTuple):
    """One line's model."""

    decide: Callable[[Evaluation, str], Verdict]
    system: Callable[[Evaluation], str]
    """Which of the evaluation's systems is the model."""

    against: str
    """What it is compared with."""

    judged: Callable[[Evaluation], Any]
    """The digest of the model that was judged."""

    datasets: Mapping[str, tuple[str, ...]]
    """By what people call them: their place among the evaluation's digests."""

    facts: Mapping[str, tuple[str, tuple[str, ...]]]
    """The stage that counted their rows, and under which names."""

    approach: str
    """CycloneDX has a list."""

    task: str
    intended_use: str
    users: tuple[str, ...]
    limits: tuple[str, ...]
    risks: Mapping[str, str]
    """What could go wrong for people, and what is done about it."""


def kind_of(evaluation: Evaluation, where: str) -> ModelKind:
    """By what the evaluation compares."""
    compared = mapping_at(evaluation, "paired")
    for sign, kind in KINDS.items():
        if any(pair.endswith(sign) for pair in compared):
            return kind
    raise DataError(f"{where}: no evaluation of a rewriter or a style model. The evaluate stage writes one.")


def mapping_at(found: Evaluation, *path: str) -> dict[str, Any]:
    """What is there, where it is a mapping."""
    inner: Any = found
    for name in path:
        inner = inner.get(name) if isinstance(inner, Mapping) else None
    return dict(inner) if isinstance(inner, Mapping) else {}


def _rewriter_verdict(evaluation: Evaluation, where: str) -> Verdict:
    return rewriter_gate.decide(evaluation, GateConfig.parse(mapping_at(evaluation, "settings", "gate"), where))


def _style_verdict(evaluation: Evaluation, where: str) -> Verdict:
    return style_gate.decide(evaluation, GateStyleConfig.parse(mapping_at(evaluation, "settings", "gate"), where))


def _candidate(evaluation: Evaluation) -> str:
    return str(evaluation.get("candidate", ""))


REWRITER = ModelKind(
    decide=_rewriter_verdict,
    system=_candidate,
    against="teacher",
    judged=lambda found: mapping_at(found, "digests", "models").get(_candidate(found)),
    datasets={
        "SFT rows (train and dev)": ("training", "sft"),
        "PPO rows (train and dev)": ("training", "ppo"),
        "locked test": ("test",),
    },
    facts={
        "SFT rows (train and dev)": ("convert", ("sft_train", "sft_dev")),
        "PPO rows (train and dev)": ("convert", ("ppo_train", "ppo_dev")),
        "locked test": ("convert", ("test",)),
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
    decide=_style_verdict,
    system=lambda found: "model",
    against="baseline",
    judged=lambda found: mapping_at(found, "digests").get("model"),
    datasets={"train": ("rows", "train"), "dev": ("rows", "dev"), "locked test": ("rows", "test")},
    facts={
        "train": ("prepare", ("train",)), "dev": ("prepare", ("dev",)), "locked test": ("prepare", ("test",)),
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

KINDS = {"_vs_teacher": REWRITER, "_vs_baseline": STYLE}
"""By the comparison that only its evaluation has."""
