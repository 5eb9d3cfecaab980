"""The students served by a real vLLM, in the environment that the evaluation has on a cluster."""

import subprocess
from pathlib import Path
from types import ModuleType

import orjson
import pytest

from components.evaluation.rewriter import engine_inference, sample_rewrites
from components.evaluation.rewriter.config import EvaluateConfig
from components.evaluation.rewriter.student_inference import uses_vllm
from components.evaluation.rewriter.student_timing import evenly_spaced
from qinglan.rewriter.guard import failed_guards
from qinglan.rewriter.model import Student
from tests.real_vllm import (
    CPU_OPTIONS,
    QUESTIONS,
    exported_release,
    serve_environment,
    serve_python,
    without_fragment,
)
from tests.tiny_rewriter import tiny_model

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


def test_vllm_is_used_where_it_is_named_and_by_itself_only_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    module = "components.evaluation.rewriter.student_inference"
    decided = {}
    for gpu in (False, True):
        for installed in (None, object()):
            monkeypatch.setattr(f"{module}._on_gpu", lambda gpu=gpu: gpu)
            monkeypatch.setattr(f"{module}.find_spec", lambda _, installed=installed: installed)
            decided[gpu, installed is not None] = uses_vllm(EvaluateConfig())

    assert decided == {(False, False): False, (False, True): False, (True, False): False, (True, True): True}
    assert uses_vllm(EvaluateConfig(engine="vllm"))
    assert not uses_vllm(EvaluateConfig(engine="transformers"))


class NotStartedError(Exception):
    """Raised in place of a vLLM, with its options."""


def record_options(weights: Path, options: list[str], *_: object) -> None:
    raise NotStartedError(options)


@pytest.mark.parametrize(
    ("positions", "context"), [(512, 512), (2047, 2047), (2048, 2048), (40_960, 2048), (131_072, 2048)]
)
@pytest.mark.parametrize("module", [engine_inference, sample_rewrites])
def test_the_engine_reads_no_more_tokens_than_the_model_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: ModuleType, positions: int, context: int
) -> None:
    """vLLM refuses to start with more: a tiny base has 512."""
    model = tiny_model(tmp_path / "model")
    settings = orjson.loads((model / "config.json").read_bytes()) | {"max_position_embeddings": positions}
    (model / "config.json").write_bytes(orjson.dumps(settings))
    monkeypatch.setattr(module, "run_engine", record_options)

    with pytest.raises(NotStartedError) as started:
        if module is engine_inference:
            engine_inference.rewrite_with_engine("rl", model, [], EvaluateConfig(engine="vllm"))
        else:
            sample_rewrites._with_engine(model, [], 1, 0, EvaluateConfig(engine="vllm"))

    assert f"--max-model-len={context}" in started.value.args[0]


@pytest.mark.slow
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
    assert output["otherwise"] == sum(bool(failed_guards(one, rewrite.text, rewrite.cut)) for one, rewrite in timed)
