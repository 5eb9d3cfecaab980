"""Read and write evaluation.json and the files beside it, which an evaluate stage leaves for gate and release."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from qinglan.documents import parse_json_mapping
from qinglan.errors import DataError
from qinglan.evaluation.gates.verdict import Verdict
from qinglan.files.files import atomic_write
from qinglan.files.plain_files import open_plain, read_plain

Json = dict[str, Any]


class Outputs(NamedTuple):
    """Paths of the outputs of an evaluate stage."""

    evaluation: Path
    report: Path
    predictions: Path
    blind_sample: Path
    blind_key: Path

    @classmethod
    def of_step(cls, artifacts: Mapping[str, Any]) -> "Outputs":
        """Return the paths of a pipeline step's artifacts, which have the names of this class's fields."""
        return cls(**{name: Path(artifact.path) for name, artifact in artifacts.items()})


class Origins(NamedTuple):
    """Origins of an evaluation's numbers: the result of the leak check, and the digests of the evaluated model and of
    every input."""

    leaks: Mapping[str, Any]
    digests: Mapping[str, Any]

    @property
    def training_rows(self) -> int:
        """Return the number of training and selection rows with which the test was compared."""
        return sum(part["rows"] for part in self.leaks["parts"].values())


def with_verdict(evaluation: Json, decide: Callable[[Json], Verdict]) -> Json:
    """Return the evaluation with its gate's verdict; `counts.promote` is 1 for a promotion, else 0."""
    # The gate reads the figures as any reader of the file would: a value that JSON cannot hold, such as NaN, is null.
    verdict = decide(orjson.loads(orjson.dumps(evaluation)))
    counts = {**evaluation["counts"], "promote": int(verdict.promote)}
    return {**evaluation, "counts": counts, "verdict": verdict._asdict()}


def write_evaluation(path: Path, evaluation: Json) -> Json:
    """Write evaluation.json, and return the evaluation as it is read back from JSON."""
    content = orjson.dumps(evaluation, option=orjson.OPT_INDENT_2)
    with atomic_write(path) as partial:
        partial.write_bytes(content)
    return dict(orjson.loads(content))


def read_evaluation(path: Path) -> Json:
    """Read evaluation.json; raises a DataError that names the evaluate stage if the file is missing or broken."""
    try:
        return parse_json_mapping(read_plain(path), str(path))
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}. The evaluate stage writes it; run that again.") from error
    except DataError as error:
        raise DataError(f"{error} The evaluate stage writes it; run that again.") from error


def read_predictions(path: Path) -> Iterable[Json]:
    """Yield the lines of predictions.jsonl, from which the evaluation's numbers were computed."""
    with open_plain(path) as file:
        yield from map(orjson.loads, file)
