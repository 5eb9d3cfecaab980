"""Only the bytes that were judged, and promoted, become a candidate."""

from pathlib import Path

import orjson
import pytest

from components.release.candidate.stage import candidate
from qinglan.errors import DataError, Held
from qinglan.files import sha256_file
from qinglan.lineage.digests import digest
from tests.components.evaluation.test_gate import changed, good


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"weights")
    return folder


def judged(path: Path, model: str, promote: bool = True) -> Path:
    """An evaluation whose figures promote, or hold while its verdict still says otherwise."""
    found = good() if promote else changed("paired.rl_vs_teacher.low", -0.2)
    found["digests"]["models"]["rl"] = model
    path.write_bytes(orjson.dumps({**found, "verdict": {"promote": True, "reasons": []}}))
    return path


def test_a_candidate_names_what_was_judged(model: Path, tmp_path: Path) -> None:
    evaluation = judged(tmp_path / "evaluation.json", digest(model))

    candidate(evaluation, model, tmp_path / "candidate.json")

    written = orjson.loads((tmp_path / "candidate.json").read_bytes())
    assert written == {"model": digest(model), "evaluation": sha256_file(evaluation), "locked_test": "1" * 64}


def test_a_model_that_was_not_the_one_judged_is_refused(model: Path, tmp_path: Path) -> None:
    evaluation = judged(tmp_path / "evaluation.json", digest(model))
    (model / "model.safetensors").write_bytes(b"others")

    with pytest.raises(DataError, match="Evaluate the model that shall be released"):
        candidate(evaluation, model, tmp_path / "candidate.json")
    assert not (tmp_path / "candidate.json").exists()


@pytest.mark.parametrize("text", ["[1]", "{}", '{"paired": 1}'])
def test_what_is_no_evaluation_makes_no_candidate(model: Path, tmp_path: Path, text: str) -> None:
    (tmp_path / "evaluation.json").write_text(text)

    with pytest.raises((DataError, Held)):
        candidate(tmp_path / "evaluation.json", model, tmp_path / "candidate.json")


def test_a_model_that_is_held_is_no_candidate_whatever_the_file_calls_it(model: Path, tmp_path: Path) -> None:
    evaluation = judged(tmp_path / "evaluation.json", digest(model), promote=False)

    with pytest.raises(Held, match="not shown"):
        candidate(evaluation, model, tmp_path / "candidate.json")
