"""Find reasons why the gate would hold back every model of a planned run. A pure function of the run's settings and
sheet.

list(find_obstacles(PlannedRun(...), GateConfig()))     # empty: the gate will decide on the numbers
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from qinglan.config import Config
from qinglan.evaluation.gates.rewriter_gate import GateConfig
from qinglan.llm.providers.model_names import same_model


class GoldCounts(NamedTuple):
    """Numbers of rows in the locked test that the gate counts: rows with gold, or all rows if `gate.by` is `labels`.

    They are upper bounds, since a teacher may refuse some rows.
    """

    rows: int = 0
    conversations: int = 0


class PlannedRun(NamedTuple):
    """Facts of a planned run from which `find_obstacles` finds reasons to hold."""

    judge: str
    examiner: str
    """Name of the examiner's model; `judge` names the model of the training's judge."""

    teacher_price: float
    """The teacher's price of a million input tokens plus that of a million output tokens."""

    hour_price: float
    """Price of an hour of the machine that serves the student."""

    test: Mapping[str, GoldCounts] | None = None
    """Counted rows of the locked test, by tenant; None if the sheet was not read."""

    snapshot: bool | None = None
    """True if the RAG service's answers name the knowledge base; None if the service was not asked."""

    cross_fitted: bool = False
    """True if no test is locked away; `test` then counts the rows of all folds."""

    cross_fit: bool = False
    """True if the profile cross-fits a small sheet that has enough labels."""

    labelled: int = 0
    """Rows of the sheet that name gold passages."""


class Obstacle(Config):
    """A reason that holds every model of the planned run, and the step that removes the reason."""

    reason: str
    next_step: str


def find_obstacles(run: PlannedRun, gate: GateConfig) -> Iterator[Obstacle]:
    """Yield each reason against a promotion that no training can remove."""
    if same_model(run.examiner, run.judge):
        yield Obstacle(
            reason=f"The examiner is the judge, {run.judge}: its scores are no second opinion.",
            next_step="Name another model, better of another family, as gateway.examiner.",
        )
    if run.test is not None and not run.cross_fitted:  # only sheets with enough rows are cross-fitted
        yield from _too_few_rows(run, run.test, gate)
    tenants = run.test or {}
    few = sorted(tenant for tenant, labelled in tenants.items() if labelled.conversations < 2)
    if few and len(tenants) > 1:  # each tenant needs an interval, which takes two conversations
        yield Obstacle(
            reason=f"Several tenants are tested, and {', '.join(few)} cannot be measured: fewer than two "
            "conversations of the locked test have gold passages.",
            next_step="Label some of them, or run that tenant alone.",
        )
    if run.teacher_price == 0 and run.hour_price > 0:
        yield Obstacle(
            reason=f"The teacher's price is 0, and the student may cost {gate.cost_ratio:g} times as much at most.",
            next_step="Put what the teacher costs by the token into gateway.teacher.price; of a model of your own, "
            "what its machine costs.",
        )
    if run.snapshot is False:
        yield Obstacle(
            reason="The RAG service's answers name no knowledge base.",
            next_step="Have it send data.snapshot, the SHA-256 of the JSONL that it serves, or set "
            "gateway.rag.snapshot_queries, which `qinglan check-rag` proposes; `stand_ins: {rag: true}` starts a "
            "service that does.",
        )


def _too_few_rows(run: PlannedRun, test: Mapping[str, GoldCounts], gate: GateConfig) -> Iterator[Obstacle]:
    if (rows := sum(labelled.rows for labelled in test.values())) < gate.rows:
        gold = " with gold passages" if gate.by == "gold" else ""
        other = " With evaluate.gate.by: labels the examiner judges rows without gold." if gold else ""
        reason = f"The locked test has {rows:,} rows{gold}; evaluate.gate.rows wants {gate.rows:,}."
        if run.cross_fit and gold and run.labelled < gate.cross_rows:
            missing = gate.cross_rows - run.labelled
            next_step = (
                f"Label {missing:,} more rows: a sheet with {gate.cross_rows:,} labelled ones and no test of its own "
                f"is cross-fitted by this profile (`qinglan run`).{other}"
            )
        else:
            next_step = (
                "Label the passages that answer in more of its conversations, mark more labelled conversations as "
                f"test, bring more rows, or let a sheet with {gate.cross_rows:,} labelled rows and no test of its "
                f"own be cross-fitted (`cross_fit: 5`, `qinglan run`).{other}"
            )
        yield Obstacle(reason=reason, next_step=next_step)
