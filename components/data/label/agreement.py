"""How far judges agree with gold passages, with themselves, with each other and with people. Pure functions.

Alike questions fail together: a judge that misreads one phrasing is wrong in every row that uses it. So intervals
draw whole phrasings, and the weakest phrasings are listed.
"""

import math
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

from qinglan.text.text import search_terms

ALIKE = 0.5
"""Share of character pairs from which two questions count as one phrasing."""

DRAWS = 2_000
LISTED = 10


class Measured(NamedTuple):
    """A check of a judge, and the question that it was about."""

    question: str
    right: bool


def phrasings(questions: Sequence[str]) -> list[int]:
    """The number of each question's phrasing: that of the first question that is alike."""
    leaders: list[set[str]] = []
    numbers = []
    for question in questions:
        pairs = set(search_terms(question))
        at = next((at for at, leader in enumerate(leaders) if _likeness(pairs, leader) >= ALIKE), len(leaders))
        if at == len(leaders):
            leaders.append(pairs)
        numbers.append(at)
    return numbers


def _likeness(left: set[str], right: set[str]) -> float:
    return len(left & right) / (len(left | right) or 1)


def share(right: Sequence[bool], groups: Sequence[Hashable], seed: int) -> dict[str, Any]:
    """The share that is right, with a 95 % interval over groups; null where it cannot be measured."""
    import numpy as np

    from qinglan.evaluation.statistics import bootstrap_means, group_numbers

    if not right:
        return {"value": None, "low": None, "high": None, "n": 0}
    column = np.array([[float(value)] for value in right])
    [estimate] = bootstrap_means(column, group_numbers(groups), DRAWS, seed)
    return {name: None if math.isnan(value) else value for name, value in estimate._asdict().items()}


def by_phrasing(measured: Sequence[Measured], seed: int) -> dict[str, Any]:
    """The share that is right over phrasings, and the phrasings that are right least often."""
    groups = phrasings([case.question for case in measured])
    cases: dict[int, list[Measured]] = defaultdict(list)
    for group, case in zip(groups, measured, strict=True):
        cases[group].append(case)
    weakest = sorted(cases.values(), key=lambda rows: (sum(row.right for row in rows) / len(rows), -len(rows)))
    return {
        **share([case.right for case in measured], groups, seed),
        "phrasings": len(cases),
        "weakest": [
            {"question": rows[0].question, "right": sum(row.right for row in rows), "rows": len(rows)}
            for rows in weakest[:LISTED]
            if not all(row.right for row in rows)
        ],
    }


def in_words(measured: Mapping[str, Any]) -> str:
    """A share for people: .91 [.84, .97] of 57."""
    if measured["value"] is None:
        return "not measured"
    low, high = measured["low"], measured["high"]
    interval = f" [{low:.2f}, {high:.2f}]" if low is not None and high is not None else ""
    return f"{measured['value']:.2f}{interval} of {measured['n']}"
