"""Measure the agreement of judges with gold passages, with each other and with people. All functions are pure.

Similar questions fail together: a judge that misreads a phrasing is wrong in every row with this phrasing. So
intervals are bootstrapped over whole phrasings, and the weakest phrasings are listed.
"""

import math
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

from qinglan.text.text import search_terms

ALIKE = 0.5
"""Share of common character pairs from which two questions count as one phrasing."""

DRAWS = 2_000
LISTED = 10


class Measured(NamedTuple):
    """Result of one check of a judge, on a row with this question."""

    question: str
    right: bool


def phrasings(questions: Sequence[str]) -> list[int]:
    """Return the number of each question's phrasing. Similar questions have the number of the first one of them."""
    leaders: list[set[str]] = []
    numbers = []
    for question in questions:
        pairs = set(search_terms(question))
        # Jaccard index of two sets of pairs; two questions without any pair have 0.
        similar = (len(pairs & leader) >= ALIKE * (len(pairs | leader) or 1) for leader in leaders)
        at = next((at for at, same in enumerate(similar) if same), len(leaders))
        if at == len(leaders):
            leaders.append(pairs)
        numbers.append(at)
    return numbers


def share(right: Sequence[bool], groups: Sequence[Hashable], seed: int) -> dict[str, Any]:
    """Return the share that is right, with a 95 % interval over groups. A value that cannot be measured is None."""
    import numpy as np

    from qinglan.evaluation.statistics import bootstrap_means, group_numbers

    if not right:
        return {"value": None, "low": None, "high": None, "n": 0}
    column = np.array([[float(value)] for value in right])
    [estimate] = bootstrap_means(column, group_numbers(groups), DRAWS, seed)
    return {name: None if math.isnan(value) else value for name, value in estimate._asdict().items()}


def by_phrasing(measured: Sequence[Measured], seed: int) -> dict[str, Any]:
    """Share that is right, with an interval over phrasings, and the phrasings that are right least often."""
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
    """Format a share as text, such as `0.91 [0.84, 0.97] of 57`."""
    if measured["value"] is None:
        return "not measured"
    low, high = measured["low"], measured["high"]
    interval = f" [{low:.2f}, {high:.2f}]" if low is not None and high is not None else ""
    return f"{measured['value']:.2f}{interval} of {measured['n']}"
