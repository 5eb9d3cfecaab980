"""Test on a few rows if the judges are good enough to label, before the other rows are paid for."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from components.data.label.config import LabelConfig
from components.data.label.judges import Judges, RowProgress, SecondJudge
from qinglan.concurrency import gather_or_cancel
from qinglan.errors import DataError
from qinglan.llm.config import Role
from qinglan.rows.labels import RELEVANT, Opinion, Outcome
from qinglan.rows.rows import ValidatedRewrite

FEWEST_FAULTS = 2
"""Smallest number of faults of one kind for which a judge is refused. One fault proves nothing in a small test."""


@dataclass
class Trial:
    """Counts of a judge's answers about unrelated passages, and about passages that it judged twice."""

    role: str
    model: str
    requests: int = 0
    unusable: int = 0
    """Requests without a usable answer."""

    controls: int = 0
    false_controls: int = 0
    """Unrelated passages that the judge called relevant; `controls` is the number of all unrelated passages."""

    repeated: int = 0
    contradicted: int = 0
    """Passages that the judge called relevant in one of two answers; `repeated` counts all passages judged twice."""

    def add_control(self, opinion: Opinion | None) -> None:
        """Count an opinion on an unrelated passage. The opinion is None if the answer was unusable."""
        self.requests += 1
        if opinion is None:
            self.unusable += 1
        else:
            self.controls += 1
            self.false_controls += opinion.grade >= RELEVANT

    def add_repeat(self, first: Opinion | None, second: Opinion | None) -> None:
        """Count two opinions on one passage."""
        self.requests += 2
        self.unusable += (first is None) + (second is None)
        if first is not None and second is not None:
            self.repeated += 1
            self.contradicted += (first.grade >= RELEVANT) != (second.grade >= RELEVANT)


def refuse_unfit(trial: Trial, config: LabelConfig) -> None:
    """Raise a DataError if too many of the judge's answers are wrong or unusable."""
    counts = (
        (trial.false_controls, trial.controls, "unrelated passages called relevant"),
        (trial.contradicted, trial.repeated, "passages called relevant in one of two answers"),
        (trial.unusable, trial.requests, "questions without a usable answer (refused, cut, or of another form)"),
    )
    faults = []
    for count, of, fault in counts:
        if count >= FEWEST_FAULTS and count > config.most_faults * of:
            faults.append(f"{count} of {of} {fault}")
    if faults:
        raise DataError(
            f"label: the {trial.role} ({trial.model}) is not fit to label: {'; '.join(faults)}. "
            f"label.most_faults allows {config.most_faults:.0%}. Name another model as gateway.{trial.role}, look at "
            "qinglan/prompts/label.txt, or set label.calls: 0 to go on without labels. Nothing else was paid."
        )


def refuse_too_few(outcomes: Counter[Outcome], gold: int, holes: Path, config: LabelConfig) -> None:
    """Raise a DataError if too few rows have a relevant passage, since training would learn mostly from wrong
    rows."""
    rows = outcomes.total() + gold
    right = outcomes["relevant"] + gold
    if rows and right < config.least_labelled * rows:
        raise DataError(
            f"label: {right:,} of {rows:,} rows have a relevant passage ({right / rows:.0%}), and "
            f"label.least_labelled asks for {config.least_labelled:.0%}: nothing should be trained on them. "
            f"{', '.join(f'{name} {count:,}' for name, count in outcomes.most_common())}. "
            f"{holes} lists the others: is this the knowledge base that should answer them, and does the "
            "need say what users mean?"
        )


async def try_judges(
    judges: Judges, rows: Sequence[ValidatedRewrite], second: SecondJudge, models: Mapping[str, str]
) -> list[Trial]:
    """Test both judges on unrelated passages, and ask the first judge twice about a passage of each row. Returns a
    Trial for each judge."""
    pools = await gather_or_cancel(*map(judges.pool, rows))
    firsts = [pool.first[0] if pool.first else None for pool in pools]
    trials: dict[Role, Trial] = {role: Trial(role, models[role]) for role in dict.fromkeys(("judge", second.role))}

    async def ask(row: ValidatedRewrite, at: int) -> None:
        # The unrelated passage is the first passage of another row. This row's need must not find it.
        known = {candidate.id for candidate in pools[at].listed}
        rest = (firsts[(at + step) % len(firsts)] for step in range(1, len(firsts)))
        control = next((other for other in rest if other is not None and other.id not in known), None)
        work = RowProgress(row, 0)
        if control is not None:
            for role, trial in trials.items():
                trial.add_control(await judges.opinion(work, control, SecondJudge(role, 0)))
        if (candidate := firsts[at]) is not None:
            twice = [await judges.opinion(work, candidate, SecondJudge("judge", sample)) for sample in (0, 1)]
            trials["judge"].add_repeat(*twice)

    await gather_or_cancel(*(ask(row, at) for at, row in enumerate(rows)))
    return list(trials.values())
