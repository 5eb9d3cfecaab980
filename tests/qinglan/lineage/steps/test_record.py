"""A step's record says what went in, what came out and how it ended; the artifacts carry it too."""

import json
from pathlib import Path

import pandas
import pytest

from qinglan.files.digests import digest
from qinglan.lineage.signing.dsse import open_envelope
from qinglan.lineage.signing.statement import from_payload
from qinglan.lineage.steps.record import RECORDS_VARIABLE, describe_artifact, recorded
from tests.releases.kfp_artifacts import File


@pytest.fixture
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(RECORDS_VARIABLE, str(tmp_path / "records"))
    return tmp_path / "records"


def test_a_done_step_names_its_inputs_outputs_and_code(tmp_path: Path, records: Path) -> None:
    (tmp_path / "in").write_text("问题")
    source, rewrites = File(str(tmp_path / "in")), File(str(tmp_path / "out"))

    lineage = File(str(tmp_path / "lineage"))

    with recorded("generate", {"questions": source}, {"rewrites": rewrites}, {"seed": 1}, lineage) as step:
        Path(rewrites.path).write_text("改写一\n改写二\n")
        step.facts["accepted"] = 1

    record = json.loads((records / "generate.json").read_text())
    assert (record["status"], record["facts"], record["config"]) == ("done", {"accepted": 1}, {"seed": 1})
    assert record["inputs"]["questions"]["sha256"] == digest(tmp_path / "in")
    assert record["outputs"]["rewrites"]["sha256"] == digest(tmp_path / "out")
    assert record["code"]["version"]


def test_an_output_carries_its_digest_and_rows_and_leaves_the_rest_to_its_statement(tmp_path: Path) -> None:
    (tmp_path / "in").write_text("问题")
    source, rewrites, lineage = (File(str(tmp_path / name)) for name in ("in", "out", "lineage"))

    with recorded("generate", {"questions": source}, {"rewrites": rewrites}, {"seed": 1}, lineage) as step:
        Path(rewrites.path).write_text("改写一\n改写二\n")
        step.facts.update({f"fact_{number}": "long" * 100 for number in range(100)})

    [sealed] = Path(lineage.path).glob("generate-*.dsse.json")
    assert rewrites.metadata == {"sha256": digest(tmp_path / "out"), "rows": 2}
    assert lineage.metadata == {"sha256": digest(tmp_path / "lineage")}
    signed = from_payload(open_envelope(sealed.read_bytes()).payload)
    assert [(part.name, part.digest) for part in signed.used][:1] == [("questions", digest(tmp_path / "in"))]
    assert signed.facts["fact_99"] == "long" * 100


def test_a_failed_step_keeps_its_error(tmp_path: Path, records: Path) -> None:
    (tmp_path / "in").write_text("问题")

    with (
        pytest.raises(ValueError, match="no answer"),
        recorded("generate", {"q": File(str(tmp_path / "in"))}, {}, {}, File(str(tmp_path / "lineage"))),
    ):
        raise ValueError("no answer")

    assert not (tmp_path / "lineage").exists(), "it signs nothing"
    record = json.loads((records / "generate.json").read_text())
    assert record["status"] == "failed"
    assert record["failure"]["type"] == "ValueError"
    assert (record["failure"]["explained"], record["failure"]["exit_code"]) == (False, 1)
    assert "no answer" in record["failure"]["traceback"]


def test_rows_of_a_folder_are_those_of_its_files(tmp_path: Path) -> None:
    pandas.DataFrame({"a": [1, 2, 3]}).to_parquet(tmp_path / "x.parquet")
    (tmp_path / "y.jsonl").write_text("{}\n{}\n")

    assert describe_artifact(File(str(tmp_path)))["rows"] == 5
