"""The whole stage, with models that are loaded and asked: leaks first, every output written, timed as served."""

from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from components.evaluation.rewriter import stage
from components.evaluation.rewriter.student_timing import evenly_spaced, time_served
from qinglan.errors import ConfigError, DataError, OutageError
from qinglan.evaluation.gates.evaluation_file import Outputs
from qinglan.files.files import dump_line, sha256_file
from qinglan.rewriter.card import RewriterCard, write_card
from qinglan.store import STORE_VARIABLE
from tests.components.evaluation.rewriter.sample_evaluation import (
    CONFIG,
    WordRag,
    gateway,
    locked_rows,
    write_knowledge_base,
)
from tests.components.evaluation.rewriter.test_leak import OTHER, write_training
from tests.models.tiny_rewriter import tiny_model
from tests.servers.echo_servers import Reply, Scripted, running


def parents(folder: Path) -> dict[str, str]:
    """As a training writes them into its model's card."""
    return {path.stem: sha256_file(path) for path in folder.iterdir()}


def outputs(folder: Path) -> Outputs:
    return Outputs(*(folder / name for name in ("e.json", "r.html", "p.jsonl", "blind.xlsx", "key.json")))


@pytest.mark.slow
@pytest.mark.usefixtures("forks_with_models")
def test_two_models_are_evaluated_from_their_folders_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STORE_VARIABLE, str(tmp_path / "store"))
    knowledge_base = write_knowledge_base(tmp_path / "kb.jsonl")
    rag = WordRag(knowledge_base)
    test = tmp_path / "test"
    test.write_bytes(b"".join(map(dump_line, locked_rows(rag.snapshot))))
    (tmp_path / "training").mkdir()
    training = write_training(tmp_path / "training", [OTHER], [OTHER])
    models = {
        name: tiny_model(tmp_path / name, seed=seed, parents=parents(training[kind]))
        for seed, (name, kind) in enumerate((("sft", "sft"), ("rl", "ppo")))
    }
    served = Scripted(Reply(200, b'{"predictions": [{"rewritten_query": "served", "model_version": "1"}]}'))
    out = outputs(tmp_path)
    with gateway(tmp_path, knowledge_base, rag) as url, running(served) as rewriter:
        config = CONFIG.model_copy(update={"rewriter_urls": {"rl": rewriter}, "latency_rows": 3})
        counts = stage.evaluate(test, models, training, {}, out, config, url)
        both, paid = orjson.loads(out.evaluation.read_bytes()), attempts(url)
        config = config.model_copy(update={"rewriter_urls": {"sft": rewriter}})
        alone = stage.evaluate(test, {"sft": models["sft"]}, {"sft": training["sft"]}, {}, out, config, url)
        assert paid > 0 and attempts(url) == paid, "asked again, paid once"

    assert (counts.rows, counts.labelled, counts.training_rows, counts.promote) == (12, 12, 4, 0)
    assert (alone.training_rows, alone.promote) == (2, 0)
    assert (counts.judged_models, alone.judged_models) == (1, 2), "rl, then sft, by the same test"
    assert "Models that this locked test has judged: 2; p must be below 0.05 / 2 = 0.025." in out.report.read_text()
    assert len(served.requests) == 2 * 4, "one to warm up, three timed"
    assert both["systems"]["sft"]["latency_p50"]["value"] > 0, "its own server was started, asked and stopped"
    assert any("sft was timed under the serving code over HTTP" in note for note in both["notes"])
    value = orjson.loads(out.evaluation.read_bytes())
    assert value["candidate"] == "sft"
    assert set(value["digests"]["models"]) == {"sft"}
    assert value["digests"]["parents"] == {"sft": parents(training["sft"])}
    assert value["leaks"]["parts"] == {"sft": {"rows": 2, "same": 0, "alike": 0, "examples": []}}
    reasons = [reason for reason in value["verdict"]["reasons"] if "digests" in reason]
    assert reasons == ["digests.parents.sft.base_model is not in the evaluation."], "the tiny model's card names none"
    assert value["digests"]["knowledge_bases"] == [rag.snapshot]
    assert all(path.stat().st_size for path in out)


def attempts(gateway_url: str) -> int:
    report: dict[str, int] = httpx.get(f"{gateway_url}/v1/journal/report", timeout=60).json()
    return report["attempts"]


def test_a_leak_stops_everything_before_a_model_is_loaded(tmp_path: Path) -> None:
    rows = locked_rows("s")
    test = tmp_path / "test"
    test.write_bytes(b"".join(map(dump_line, rows)))
    training = write_training(tmp_path, [rows[3]], [OTHER])
    write_card(tmp_path, RewriterCard(stage="sft"))
    models = {"sft": tmp_path, "rl": tmp_path}

    with pytest.raises(DataError, match="trained or selected on"):
        stage.evaluate(test, models, training, {}, outputs(tmp_path), CONFIG, "http://127.0.0.1:9")


@pytest.mark.parametrize(
    ("models", "training", "reasons"),
    [
        ({"rl": "x"}, {"sft": "x", "ppo": "x"}, "sft is needed"),
        ({"sft": "x", "other": "x"}, {"sft": "x"}, "sft is needed"),
    ],
)
def test_a_missing_input_of_the_evaluation_is_named(tmp_path: Path, models: Any, training: Any, reasons: str) -> None:
    with pytest.raises(ConfigError, match=reasons):
        stage.evaluate(tmp_path, models, training, {}, outputs(tmp_path), CONFIG, "http://127.0.0.1:9")


def test_an_empty_test_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "test").write_bytes(b"")
    write_card(tmp_path, RewriterCard(stage="sft"))

    with pytest.raises(DataError, match="no rows"):
        stage.evaluate(
            tmp_path / "test",
            {"sft": tmp_path},
            {"sft": tmp_path},
            {},
            outputs(tmp_path),
            CONFIG,
            "http://127.0.0.1:9",
        )


def test_a_rewriter_that_is_away_is_an_outage() -> None:
    with running(Scripted(Reply(503, b"loading"))) as url, pytest.raises(OutageError, match="503"):
        time_served(url, locked_rows("s")[:1])


@pytest.mark.parametrize(("rows", "count", "positions"), [(10, 2, [0, 5]), (3, 9, [0, 1, 2]), (0, 5, [])])
def test_timed_rows_are_spread_over_all(rows: int, count: int, positions: list[int]) -> None:
    assert evenly_spaced(rows, count) == positions
