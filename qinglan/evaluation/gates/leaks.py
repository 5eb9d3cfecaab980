"""Leak check of both model lines: compare the locked test with every row of training and model selection.

leaks = check_leaks([("t1", "…"), …], {"sft": [("train.jsonl:1 (row r7)", "…"), …]}, 0.8, "Convert again.")
reasons = leak_reasons(numbers, ("sft",), 0.8)                  # none: nothing leaked
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from qinglan.errors import DataError
from qinglan.evaluation.gates.verdict import EvaluationNumbers

MAX_EXAMPLES = 5

NamedText = tuple[str, str]
"""A row's name and its normalised text."""


def check_leaks(
    test: Iterable[NamedText],
    parts: Mapping[str, Iterable[NamedText]],
    threshold: float,
    advice: str,
    complete: Collection[str] | None = None,
) -> dict[str, Any]:
    """Compare the test with every row of `parts`, and return the field `leaks` of evaluation.json.

    `complete` holds the questions of the test that mean the same after any history; None if the texts are not
    questions. If a test row is in a part word for word, a DataError is raised, since the evaluation would be paid for
    nothing. Test rows that are nearly the same are counted, and the gate then holds the model.
    """
    from qinglan.text.near_duplicates import NearDuplicateIndex  # needs numpy, which an audit does without
    from qinglan.text.same_tasks import TaskIndex

    names: dict[str, list[str]] = defaultdict(list)
    for name, text in test:
        names[text].append(name)
    index = NearDuplicateIndex(names, threshold) if complete is None else TaskIndex(names, threshold, complete)
    leaks: dict[str, Any] = {"threshold": threshold, "parts": {}}
    for part, rows in parts.items():
        count, same, alike = 0, dict[str, str](), dict[str, str]()
        for name, text in rows:
            count += 1
            for match in index.alike(text):
                (same if match == text else alike).setdefault(match, name)
        nearly = {text: name for text, name in alike.items() if text not in same}
        # Only names, since texts would carry the test into a report. Rows that are word for word the same come first.
        examples = [{"test": names[text][0], "learned": name} for text, name in [*same.items(), *nearly.items()]]
        leaks["parts"][part] = {
            "rows": count,
            "same": sum(len(names[text]) for text in same),
            "alike": sum(len(names[text]) for text in nearly),
            "examples": examples[:MAX_EXAMPLES],
        }
    for part, overlap in leaks["parts"].items():
        if same_rows := overlap["same"]:
            pairs = (f"test row {pair['test']} is {pair['learned']}" for pair in overlap["examples"][:same_rows])
            more = f" and {same_rows - MAX_EXAMPLES} more" if same_rows > MAX_EXAMPLES else ""
            raise DataError(
                f"{same_rows} rows of the locked test are among those of {part}, which were trained or selected on: "
                f"{'; '.join(pairs)}{more}. {advice}"
            )
    return leaks


def joined_leaks(leaks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Join the `leaks` of several folds for evaluation.json. Each fold's test was compared with the rows from which
    the fold's own models learned."""
    parts: dict[str, Any] = {}
    for checked in leaks:
        for name, overlap in checked["parts"].items():
            before = parts.get(name, {"rows": 0, "same": 0, "alike": 0, "examples": []})
            parts[name] = {key: before[key] + overlap[key] for key in before}
    return {"threshold": leaks[0]["threshold"], "parts": parts}


def leak_reasons(numbers: EvaluationNumbers, expected: Sequence[str], threshold: float) -> Iterator[str]:
    """Yield a reason to hold if the test leaked into a compared part, or was not compared with an `expected` part."""
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
    """Describe the result of the leak check in one sentence, for a report."""
    if not leaks:
        return "Nobody compared the test with what the models learned from."
    counts = "; ".join(
        f"{part} ({overlap['rows']:,} rows): {overlap['same']:,} the same, {overlap['alike']:,} nearly"
        for part, overlap in leaks["parts"].items()
    )
    return f"Test rows among those learned from, nearly from a similarity of {leaks['threshold']:g} on: {counts}."
