"""The locked test held against every row of training and selection; whether a gate may pass it.

leaks = check_leaks([("t1", "…"), …], {"sft": [("train.jsonl:1 (row r7)", "…"), …]}, 0.8, "Convert again.")
reasons = leak_reasons(numbers, ("sft",), 0.8)                  # none: nothing leaked
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from qinglan.errors import DataError
from qinglan.evaluation.gates.verdict import EvaluationNumbers

MAX_EXAMPLES = 5

NamedText = tuple[str, str]
"""A row's name, and its text as it is compared: normalised."""


class Overlap(NamedTuple):
    """A test, and one set of rows that a model learned from or was chosen on."""

    rows: int
    """Size of that set."""

    same: int
    """Test rows that are among them, but for what normalising takes away."""

    alike: int
    """Other test rows that are nearly."""

    examples: list[dict[str, str]]
    """Some of both by name, the same ones first; a text would carry the test into a report."""


class LockedTest:
    """A locked test's texts, to hold others against."""

    def __init__(self, test: Iterable[NamedText], threshold: float, complete: Collection[str] | None = None) -> None:
        from qinglan.text.near_duplicates import (
            NearDuplicateIndex,  # numpy: an audit, which reads figures, needs none
        )
        from qinglan.text.same_tasks import TaskIndex

        self._names: dict[str, list[str]] = defaultdict(list)
        for name, text in test:
            self._names[text].append(name)
        self._known = (
            NearDuplicateIndex(self._names, threshold)
            if complete is None
            else TaskIndex(self._names, threshold, complete)
        )

    def section(self, parts: Mapping[str, Iterable[NamedText]]) -> dict[str, Any]:
        """evaluation.json's `leaks`."""
        overlaps = {part: self.against(rows)._asdict() for part, rows in parts.items()}
        return {"threshold": self._known.threshold, "parts": overlaps}

    def against(self, rows: Iterable[NamedText]) -> Overlap:
        """Each test row counts once, however many rows repeat it."""
        count, same, alike = 0, dict[str, str](), dict[str, str]()
        for name, text in rows:
            count += 1
            for match in self._known.alike(text):
                (same if match == text else alike).setdefault(match, name)
        nearly = {text: name for text, name in alike.items() if text not in same}
        return Overlap(count, self._rows(same), self._rows(nearly), self._shown({**same, **nearly}))

    def _rows(self, texts: Iterable[str]) -> int:
        return sum(len(self._names[text]) for text in texts)

    def _shown(self, leaked: Mapping[str, str]) -> list[dict[str, str]]:
        named = [(self._names[text][0], name) for text, name in leaked.items()]
        return [{"test": test, "learned": learned} for test, learned in named[:MAX_EXAMPLES]]


def check_leaks(
    test: Iterable[NamedText],
    parts: Mapping[str, Iterable[NamedText]],
    threshold: float,
    advice: str,
    complete: Collection[str] | None = None,
) -> dict[str, Any]:
    """evaluation.json's `leaks`: every row of these parts beside the test. `complete`: those of a test of questions
    that mean the same after any history; None where the texts are no questions.

    A test row that was learned word for word is a DataError, as no number is worth paying for then; one that nearly
    was is counted, and the gate holds.
    """
    leaks = LockedTest(test, threshold, complete).section(parts)
    _refuse_exact_leaks(leaks, advice)
    return leaks


def _refuse_exact_leaks(leaks: Mapping[str, Any], advice: str) -> None:
    for part, overlap in leaks["parts"].items():
        if same := overlap["same"]:
            pairs = (f"test row {pair['test']} is {pair['learned']}" for pair in overlap["examples"][:same])
            named = "; ".join(pairs)
            more = f" and {same - MAX_EXAMPLES} more" if same > MAX_EXAMPLES else ""
            raise DataError(
                f"{same} rows of the locked test are among those of {part}, which were trained or selected on: "
                f"{named}{more}. {advice}"
            )


def leak_reasons(numbers: EvaluationNumbers, expected: Sequence[str], threshold: float) -> Iterator[str]:
    """Why the test is not one that the models never saw; nothing when it is. What else was compared counts too."""
    compared = numbers.value("leaks", "parts")
    parts = dict.fromkeys((*expected, *compared)) if isinstance(compared, Mapping) else expected
    if (used := numbers("leaks", "threshold")) > threshold:
        yield f"Near-duplicates were looked for from {used:g} on only; {threshold:g} is wanted."
    for part in parts:
        rows, same, alike = (numbers("leaks", "parts", part, name) for name in ("rows", "same", "alike"))
        if rows < 1:
            yield f"The test was compared with no rows of {part}, so nobody can tell whether it leaked."
        if same or alike:
            yield (
                f"The test leaked: {same:.0f} of its rows are among those of {part}, and {alike:.0f} nearly. "
                "Prepare the data again, and train on what that writes."
            )


def describe_leaks(leaks: Mapping[str, Any] | None) -> str:
    """One line for a report."""
    if not leaks:
        return "Nobody compared the test with what the models learned from."
    counts = "; ".join(
        f"{part} ({overlap['rows']:,} rows): {overlap['same']:,} the same, {overlap['alike']:,} nearly"
        for part, overlap in leaks["parts"].items()
    )
    return f"Test rows among those learned from, nearly from a similarity of {leaks['threshold']:g} on: {counts}."
