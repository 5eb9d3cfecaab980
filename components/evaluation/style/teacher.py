"""The teacher's answers to the locked test, as its own evaluation has written them: it is not asked again."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson

from qinglan.errors import DataError
from qinglan.evaluation.gates.evaluation_file import read_evaluation
from qinglan.evaluation.gates.kinds import mapping_at
from qinglan.evaluation.statistics import Columns
from qinglan.files.digests import digest
from qinglan.style.labels import Labels
from qinglan.style.model import StyleCard
from qinglan.style.rows import StyleRow


class TeacherFiles(NamedTuple):
    """The outputs of the teacher's evaluation that its student's needs."""

    evaluation: Path
    predictions: Path


def teacher_probabilities(files: TeacherFiles, card: StyleCard, test: Sequence[StyleRow], labels: Labels) -> Columns:
    """A row of probabilities for each test row; an error where they are another model's, or of another test."""
    digests = mapping_at(read_evaluation(files.evaluation), "digests")
    if digests.get("model") != card.parents.get("teacher"):
        raise DataError(
            f"{files.evaluation}: is about model {str(digests.get('model'))[:12]}, and the student learned from "
            f"{card.parents.get('teacher', 'none')[:12]}. Evaluate its teacher, then the student."
        )
    if digests.get("predictions") != digest(files.predictions):
        raise DataError(
            f"{files.predictions}: not the predictions that {files.evaluation} was made of. Run evaluate again."
        )
    lines = [orjson.loads(line) for line in files.predictions.read_bytes().splitlines()]
    if [line["id"] for line in lines] != [row.id for row in test]:
        raise DataError(f"{files.predictions}: of other test rows than those beside it. Run evaluate again.")
    return np.array([_row(line, labels) for line in lines])


def _row(line: dict[str, Any], labels: Labels) -> list[float]:
    return [line["model"]["probabilities"][name] for name in labels.names]
