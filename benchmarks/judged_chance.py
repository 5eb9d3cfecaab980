"""Verdicts by labels on made-up tests whose truth is known, with judges that err.

Each draw is an evaluation table of 240 questions without gold, two turns a conversation. Under test is everything
between the examiner's grades and the verdict.

    python -m benchmarks.judged_chance     the table in the stage's README; five minutes
"""

import math
from collections import Counter
from collections.abc import Callable
from functools import cache
from random import Random
from typing import Any, NamedTuple

import pytest

from components.evaluation.rewriter import stage
from components.evaluation.rewriter.measures import RetrievalResult, measure_judged, measure_rewrite
from components.evaluation.rewriter.score_systems import ScoredRows
from components.evaluation.rewriter.student_timing import StudentOutput
from qinglan.evaluation import statistics
from qinglan.evaluation.gates.rewriter_gate import GateConfig
from qinglan.rows.rows import ValidatedRewrite
from tests.components.evaluation.rewriter.sample_evaluation import CONFIG, NOTHING, ORIGINS, writing
from tests.models.validated_rows import validated

DRAWS = 200
TURNS = 2
CONVERSATIONS = 120
JUDGE_ERRS = 0.1
SHARED = 0.6
"""Share of the questions on which teacher and student have the same luck, and find the same passage."""

REPORT = {
    "models": {"teacher": {"typical_seconds": 1.0}, "judge": {"model": "a"}, "examiner": {"model": "b"}},
    "by_step": [{"role": "teacher", "answered": 100, "cost": 25.0}],
}
CONFIGURED = CONFIG.model_copy(update={"draws": 1_000, "gate": GateConfig(by="labels")})
Grade = Callable[[Random, str], int]
draw_counts = statistics._draw_counts


class Skill(NamedTuple):
    """Shares of questions whose right passage is found first."""

    teacher: float
    rl: float
    plain: float = 0.3


@cache
def questions() -> list[ValidatedRewrite]:
    return [
        validated(
            id=f"q{number}", conversation_id=f"c{number // TURNS}", question=f"问题{number}", need=f"问题{number}",
            history_summary="", gold=(), split="test", rewritten_query=f"改写{number}", plain=NOTHING,
            rewritten=NOTHING,
        )
        for number in range(TURNS * CONVERSATIONS)
    ]  # fmt: skip


@cache
def students() -> dict[str, StudentOutput]:
    texts = [f"改写{number}" for number in range(TURNS * CONVERSATIONS)]
    return {"rl": writing(texts)}


def first_passages(chance: Random, skill: Skill, hardness: float) -> dict[str, str]:
    """Each system's first passage in one row: `right`, or a wrong one."""
    luck = chance.random()
    alike = chance.random() < SHARED
    lucks = {"teacher": luck, "rl": luck if alike else chance.random(), "plain": chance.random()}
    wrong = {name: "wrong" if alike else f"wrong {name}" for name in lucks}
    shares = {name: getattr(skill, name) + hardness for name in lucks}
    return {name: "right" if lucks[name] < shares[name] else wrong[name] for name in lucks}


def erring_judge(chance: Random, passage: str) -> int:
    """Right in nine of ten grades, whichever way."""
    relevant = (passage == "right") != (chance.random() < JUDGE_ERRS)
    return 3 if relevant else 0


def row_values(
    chance: Random, row: ValidatedRewrite, skill: Skill, hardness: float, judge: Grade
) -> dict[str, dict[str, float]]:
    first = first_passages(chance, skill, hardness)
    grades = {passage: judge(chance, passage) for passage in dict.fromkeys(first.values())}
    values = {}
    for name, passage in first.items():
        ids = (passage, *(["right"] if passage != "right" and chance.random() < 0.5 else []), f"{name} behind")
        values[name] = alike_in_all(row.id) | measures_of_grades(tuple(grades.items()), ids)
    return values


@cache
def measures_of_grades(grades: tuple[tuple[str, int], ...], ids: tuple[str, ...]) -> dict[str, float]:
    return measure_judged(dict(grades), ids)


@cache
def alike_in_all(row_id: str) -> dict[str, float]:
    """Measures of a row that say nothing of who is better: length, copies, invented numbers."""
    row = questions()[int(row_id.removeprefix("q"))]
    return measure_rewrite(row, row.rewritten_query, RetrievalResult(("any",), ("文",), 0.5)) | {"quality": math.nan}


def right_judge(chance: Random, passage: str) -> int:
    return 3 if passage == "right" else 0


def leaning_judge(share: float) -> Grade:
    """Takes this share of the student's own wrong passages for right ones, as one that praised them in training."""

    def grade(chance: Random, passage: str) -> int:
        return 3 if passage == "wrong rl" and chance.random() < share else erring_judge(chance, passage)

    return grade


def evaluate(seed: int, skill: Skill, judge: Grade) -> dict[str, Any]:
    chance, rows = Random(seed), questions()
    hardness = [chance.gauss(0, 0.1) for _ in range(CONVERSATIONS)]
    values = [row_values(chance, row, skill, hardness[number // TURNS], judge) for number, row in enumerate(rows)]
    scored = ScoredRows(values, [{} for _ in rows], Counter(), [], REPORT)
    kinds = [("complete",)] * len(rows)
    return stage.build_evaluation(rows, kinds, {}, students(), scored, ORIGINS, CONFIGURED)


def count_verdicts(draws: int, skill: Skill, judge: Grade = erring_judge) -> tuple[int, int]:
    """Evaluations that are promoted, and those whose difference in right first passages alone passes the gate."""
    with pytest.MonkeyPatch.context() as patch:
        # Each evaluation draws the same conversations: its seed is the configured one.
        patch.setattr(statistics, "_draw_counts", cache(lambda *arguments: list(draw_counts(*arguments))))
        evaluations = [evaluate(seed, skill, judge) for seed in range(draws)]
    gaps = [evaluation["paired"]["rl_vs_teacher"] for evaluation in evaluations]
    promoted = sum(evaluation["verdict"]["promote"] for evaluation in evaluations)
    return promoted, sum(gap["low"] > 0 and gap["p"] < CONFIGURED.gate.p for gap in gaps)


JUDGES: dict[str, Grade] = {
    "judge without error": right_judge,
    "10 % of grades wrong": erring_judge,
    "and 20 % of the student's": leaning_judge(0.2),
    "and 50 %": leaning_judge(0.5),
}
TEACHER = 0.7
STUDENTS = (0.65, 0.7, 0.8, 0.85)


def print_table() -> None:
    """Print how many of 200 students each judge promotes, and how many pass by right first passages alone."""
    print("| the student is right in |", " | ".join(JUDGES), "|")
    print("|---" * (1 + len(JUDGES)) + "|")
    for share in STUDENTS:
        counts = [count_verdicts(DRAWS, Skill(TEACHER, share), judge) for judge in JUDGES.values()]
        cells = (f"{promoted} ({better})" for promoted, better in counts)
        print(f"| {share:.0%} |", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    print_table()
