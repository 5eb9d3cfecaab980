"""Only the bytes that were judged, and promoted, become a candidate."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from components.release.candidate.stage import candidate
from qinglan.errors import DataError, Held
from qinglan.files import sha256_file
from qinglan.lineage.record import digest


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"weights")
    return folder


def judged(path: Path, model: str, promote: bool = True) -> Path:
    verdict: dict[str, Any] = {"promote": promote, "reasons": ["top-1 lost."]}
    digests = {"models": {"rl": model}, "test": "t"}
    path.write_bytes(orjson.dumps({"candidate": "rl", "verdict": verdict, "digests": digests}))
    return path


def test_a_candidate_names_what_was_judged(model: Path, tmp_path: Path) -> None:
    evaluation = judged(tmp_path / "evaluation.json", digest(model))

    candidate(evaluation, model, tmp_path / "candidate.json")

    written = orjson.loads((tmp_path / "candidate.json").read_bytes())
    assert written == {"model": digest(model), "evaluation": sha256_file(evaluation), "locked_test": "t"}


def test_a_model_that_was_not_the_one_judged_is_refused(model: Path, tmp_path: Path) -> None:
    evaluation = judged(tmp_path / "evaluation.json", digest(model))
    (model / "model.safetensors").write_bytes(b"others")

    with pytest.raises(DataError, match="Evaluate the model that shall be released"):
        candidate(evaluation, model, tmp_path / "candidate.json")
    assert not (tmp_path / "candidate.json").exists()


def test_a_model_that_is_held_is_no_candidate(model: Path, tmp_path: Path) -> None:
    evaluation = judged(tmp_path / "evaluation.json", digest(model), promote=False)

    with pytest.raises(Held, match="top-1 lost"):
        candidate(evaluation, model, tmp_path / "candidate.json")
