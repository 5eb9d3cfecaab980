"""Labels for rows without gold passages: judges or people grade how well a passage answers a row's need.

A passage without a label is unknown, which does not mean irrelevant.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

import orjson
from pydantic import Field

from qinglan.config import Config
from qinglan.errors import RowError
from qinglan.text.text import one_line

HIGHEST, RELEVANT = 3, 2
"""The grade of a passage that answers in full, and the lowest grade that counts as relevant."""

GAINS = {RELEVANT: 0.5, HIGHEST: 1.0}
"""Gain of a retrieved passage, by its grade; passages with lower grades gain nothing."""

PASSAGE_CHARACTERS = 1500
"""Number of a passage's first characters that a judge reads, unless a setting says otherwise."""

REASON_CHARACTERS = 300

Source = Literal["judge", "person"]
Outcome = Literal["relevant", "nothing relevant", "no usable answer", "out of calls"]


class Opinion(NamedTuple):
    """A judge's answer about one passage."""

    grade: int
    reason: str


def read_opinion(text: str) -> Opinion:
    """Read a grade from 0 to 3 and its reason; a RowError if the answer has no such grade."""
    answer = orjson.loads(text)
    grade = answer.get("评分")
    if isinstance(grade, bool) or grade not in range(HIGHEST + 1):
        raise RowError("malformed", f"评分 is {grade!r}, and 0, 1, 2 or 3 is needed.", text)
    return Opinion(int(grade), one_line(str(answer.get("理由", "")))[:REASON_CHARACTERS])


class Label(Config):
    """The grade of one passage for one row's need."""

    id: str
    """Id of the passage."""

    grade: int = Field(ge=0, le=HIGHEST)
    """Grade: 0 about something else, 1 the same subject, 2 answers in part, 3 answers in full."""


class JudgedPassage(Label):
    """A label with the text of its passage, the judges' grades and the reason."""

    title: str = ""
    content: str = ""
    reason: str = ""
    """Reason in one sentence, from the judge whose grade counts."""

    grades: tuple[int, ...] = ()
    """Grade of the first judge, and of the second judge if it was asked; the lower grade counts."""

    source: Source = "judge"
    by: str = ""
    """Origin of the passage: the query that retrieved it, or `choice` if a judge chose it from a list."""


class RowLabels(Config):
    """All labels of one row without gold passages."""

    id: str
    tenant_id: str
    judged: tuple[JudgedPassage, ...] = ()
    outcome: Outcome
    calls: int
    """Requests to paid models for this row."""

    unusable: tuple[str, ...] = ()
    """The reason of each answer that could not be used."""

    @property
    def labels(self) -> tuple[Label, ...]:
        return tuple(Label(id=passage.id, grade=passage.grade) for passage in self.judged)


def best_grade(labels: Iterable[Label]) -> int:
    return max((label.grade for label in labels), default=0)


def passage_gains(labels: Iterable[Label]) -> dict[str, float]:
    return {label.id: GAINS[label.grade] for label in labels if label.grade >= RELEVANT}


def relevant_ids(gold: Sequence[str], labels: Iterable[Label]) -> tuple[str, ...]:
    """Return the ids of the passages that answer a row: its gold passages or, without any, those labelled
    relevant."""
    return tuple(gold) or tuple(passage_gains(labels))


def graded_ndcg(ids: Sequence[str], gains: Mapping[str, float], depth: int) -> float:
    """Compute nDCG over the first `depth` passages (Järvelin and Kekäläinen 2002). It is 1 if the passages with the
    highest gains come first."""
    ideal = _discounted(sorted(gains.values(), reverse=True)[:depth])
    return _discounted([gains.get(passage, 0.0) for passage in ids[:depth]]) / ideal if ideal else 0.0


def _discounted(gains: Sequence[float]) -> float:
    return sum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains, 1))
