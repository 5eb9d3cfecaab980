"""The students served by a real vLLM, in the environment that the evaluation has on a cluster."""

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
import pytest

from components.evaluation.rewriter import engine_inference
from components.evaluation.rewriter.config import EvaluateConfig
from components.evaluation.rewriter.student_timing import evenly_spaced
from qinglan.errors import DataError
from qinglan.rewriter.card import CARD
from qinglan.rewriter.guard import failed_guards
from qinglan.rewriter.model import Student
from tests.models.real_vllm import (
    CPU_OPTIONS,
    QUESTIONS,
    exported_release,
    serve_environment,
    serve_python,
    without_fragment,
)
from tests.models.tiny_rewriter import tiny_model

TIMED = 6
SCRIPT = """
import sys
from pathlib import Path

import orjson

from components.evaluation.rewriter.config import EvaluateConfig
from components.evaluation.rewriter.student_inference import rewrite_all
from qinglan.prompts import Question

values = orjson.loads(sys.stdin.buffer.read())
rows = [Question(*row) for row in values["rows"]]
[output] = rewrite_all({"rl": Path(values["model"])}, rows, EvaluateConfig(**values["config"])).values()
Path(values["output"]).write_bytes(orjson.dumps(output._asdict()))
"""


class NotStartedError(Exception):
    """Raised in place of a vLLM, with its options."""


def record_options(weights: Path, options: list[str], *_: object, **more: object) -> None:
    raise NotStartedError(options)


@pytest.mark.parametrize(
    ("positions", "context"), [(512, 512), (2047, 2047), (2048, 2048), (40_960, 2048), (131_072, 2048)]
)
def test_the_engine_reads_no_more_tokens_than_the_model_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, positions: int, context: int
) -> None:
    """vLLM refuses to start with more: a tiny base has 512."""
    model = tiny_model(tmp_path / "model")
    settings = orjson.loads((model / "config.json").read_bytes()) | {"max_position_embeddings": positions}
    (model / "config.json").write_bytes(orjson.dumps(settings))
    monkeypatch.setattr(engine_inference, "run_engine", record_options)

    with (
        pytest.raises(NotStartedError) as started,
        engine_inference.student_engine(model, EvaluateConfig(engine="vllm")),
    ):
        pass

    assert f"--max-model-len={context}" in started.value.args[0]


@pytest.mark.parametrize(
    ("visible", "each", "engines", "gpus"),
    [
        ([], 1, 2, []),
        (["0"], 1, 2, []),
        (["0", "1"], 1, 2, [["0"], ["1"]]),
        (["0", "1", "2", "3"], 1, 2, [["0"], ["1"]]),
        (["0", "1", "2"], 2, 2, []),
        (["4", "5", "6", "7"], 2, 2, [["4", "5"], ["6", "7"]]),
        (["GPU-a", "GPU-b"], 1, 2, [["GPU-a"], ["GPU-b"]]),
        (["0", "1"], 1, 1, []),  # one engine has all cards
    ],
)
def test_each_engine_has_cards_of_its_own_or_they_take_turns(
    visible: list[str], each: int, engines: int, gpus: list[list[str]]
) -> None:
    assert engine_inference.gpus_of_engines(visible, each, engines) == gpus


@pytest.mark.parametrize("visible", [["0"], ["2", "3"]])
def test_engines_with_cards_of_their_own_start_side_by_side_and_work_in_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, visible: list[str]
) -> None:
    """Two that start together meet at the barrier; one after the other, each would wait there in vain."""
    models = {name: tiny_model(tmp_path / name) for name in ("sft", "rl")}
    together, running, started_on = threading.Barrier(2), set[str](), []

    @contextmanager
    def run_engine(weights: Path, *_: object, gpus: list[str], **more: object) -> Iterator[str]:
        if gpus:
            together.wait(60)
        running.add(weights.name)
        started_on.append((weights.name, list(gpus)))
        yield weights.name
        running.remove(weights.name)

    def rewrite(name: str, folder: Path, rows: object, config: object, engine: str) -> tuple[str, int]:
        assert engine == name
        return name, len(running)

    monkeypatch.setattr(engine_inference, "run_engine", run_engine)
    monkeypatch.setattr(engine_inference, "_rewrite", rewrite)
    monkeypatch.setattr(engine_inference, "visible_gpus", lambda: visible)

    outputs: object = engine_inference.rewrite_with_engines(models, [], EvaluateConfig(engine="vllm"))

    apart = len(visible) == 2
    assert outputs == {name: (name, 2 if apart else 1) for name in models}
    assert sorted(started_on) == sorted(zip(models, [["2"], ["3"]] if apart else [[], []], strict=True))
    assert not running


def test_a_model_that_no_server_takes_is_refused_before_any_engine_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = {name: tiny_model(tmp_path / name) for name in ("sft", "rl")}
    card = orjson.loads((models["rl"] / CARD).read_bytes())
    (models["rl"] / CARD).write_bytes(orjson.dumps(card | {"prompts_sha256": ""}))
    monkeypatch.setattr(engine_inference, "run_engine", record_options)

    with pytest.raises(DataError, match="prompts_sha256"):
        engine_inference.rewrite_with_engines(models, [], EvaluateConfig(engine="vllm"))


@pytest.mark.slow
@pytest.mark.nightly
def test_vllm_writes_what_transformers_writes_and_is_timed_behind_our_server(tmp_path: Path) -> None:
    release = exported_release(tmp_path)
    expected = [without_fragment(rewrite) for rewrite in Student.load(release).write(QUESTIONS)]
    config = {"engine": "vllm", "vllm_options": CPU_OPTIONS, "batch": 16, "latency_rows": TIMED}
    written = tmp_path / "output.json"
    rows = [list(row) for row in QUESTIONS]
    inputs = {"rows": rows, "model": str(release), "config": config, "output": str(written)}

    done = subprocess.run(
        [serve_python(), "-c", SCRIPT],
        input=orjson.dumps(inputs), env=serve_environment(),
        capture_output=True, timeout=900, cwd=Path(__file__).parents[4],
    )  # fmt: skip

    assert done.returncode == 0, done.stderr.decode()[-3000:]
    output = orjson.loads(written.read_bytes())
    assert output["texts"] == [rewrite.text for rewrite in expected]
    assert output["cut"] == sum(rewrite.cut for rewrite in expected)
    assert (output["engine"], len(output["latencies"])) == ("vLLM", TIMED)
    timed = [(QUESTIONS[at], expected[at]) for at in evenly_spaced(len(QUESTIONS), TIMED)]
    assert output["otherwise"] == sum(
        bool(failed_guards(question, rewrite.text, rewrite.cut)) for question, rewrite in timed
    )
