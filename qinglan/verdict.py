"""What gates share: the verdict, and an evaluation read so that whatever cannot be read holds.

numbers = Numbers(evaluation)
reasons = [*said(enough(numbers, gate)), *said(better(numbers, gate))]     # none: promote
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import orjson

from qinglan.errors import DataError

DIGEST = re.compile("[0-9a-f]{64}")


class Verdict(NamedTuple):
    promote: bool
    word: Literal["promote", "hold"]
    reasons: list[str]
    """Why it is held, or what speaks for it."""


class MissingNumberError(Exception):
    """A number that the verdict needs is not there."""


class EvaluationNumbers:
    """An evaluation, read by path; anything but a finite number is missing."""

    def __init__(self, evaluation: Mapping[str, Any]) -> None:
        self._evaluation = evaluation

    def value(self, *path: str) -> Any:
        found: Any = self._evaluation
        for name in path:
            if not isinstance(found, Mapping) or name not in found:
                raise MissingNumberError(f"{'.'.join(path)} is not in the evaluation")
            found = found[name]
        return found

    def __call__(self, *path: str) -> float:
        found = self.value(*path)
        if found is None:
            raise MissingNumberError(f"{'.'.join(path)} could not be measured")
        if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found):
            raise MissingNumberError(f"{'.'.join(path)} is {found!r}, which is no number")
        return float(found)


def read_evaluation(path: Path) -> dict[str, Any]:
    """evaluation.json, or an error that says where it comes from."""
    try:
        found = orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError) as error:
        raise DataError(f"{path}: {error}. The evaluate stage writes it; run that again.") from error
    if not isinstance(found, dict):
        raise DataError(f"{path}: no evaluation. The evaluate stage writes it; run that again.")
    return found


def missing_digests(numbers: EvaluationNumbers, *paths: Sequence[str]) -> Iterator[str]:
    """A reason for each digest that is not there: what nobody can name, nobody can audit."""
    for path in paths:
        try:
            found = numbers.value(*path)
        except MissingNumberError as missing:
            yield f"{missing}."
            continue
        if not (isinstance(found, str) and DIGEST.fullmatch(found)):
            yield f"{'.'.join(path)} is {found!r}, which is no SHA-256 digest."


def collect_reasons(check: Iterator[str]) -> list[str]:
    """The reasons that a check gives to hold; a number that is not there is one."""
    reasons: list[str] = []
    try:
        reasons.extend(check)
    except MissingNumberError as missing:
        reasons.append(f"{missing}.")
    return reasons


def verdict_bytes(verdict: Verdict) -> bytes:
    """The verdict as the lineage keeps it: its digest is in the gate's statement, and in that of a release."""
    return orjson.dumps({"word": verdict.word, "reasons": verdict.reasons}, option=orjson.OPT_SORT_KEYS)


def to_markdown(verdict: Verdict) -> str:
    """The verdict for a person: the word, and each reason."""
    return "\n".join([f"**{verdict.word.capitalize()}**", "", *(f"- {reason}" for reason in verdict.reasons), ""])
