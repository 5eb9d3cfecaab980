"""Between a student's batches and its server: the memory it held is free, and a large one has time to start."""

import gc
from pathlib import Path

import pytest

from components.evaluation.rewriter.config import EvaluateConfig
from components.evaluation.rewriter.student_inference import rewrite_all
from components.evaluation.rewriter.student_timing import ready_seconds
from qinglan.processes.services import READY_SECONDS
from qinglan.prompts import Question
from tests.models.tiny_rewriter import TAUGHT, taught_model


def models_in_memory() -> int:
    return sum(type(item).__name__ == "Qwen3ForCausalLM" for item in gc.get_objects())


@pytest.mark.slow
def test_a_student_leaves_the_gpu_before_its_server_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, loaded = taught_model(tmp_path / "model"), []
    rows = [Question("fivedoctors", question) for question in TAUGHT]
    gc.collect()
    before = models_in_memory()
    monkeypatch.setattr("torch.cuda.empty_cache", lambda: loaded.append(models_in_memory() - before))

    config = EvaluateConfig(batch=2, rewriter_urls={"sft": "http://127.0.0.1:9"})
    writings = rewrite_all({"sft": model}, rows, config.model_copy(update={"latency_rows": 0}))

    assert writings["sft"].texts == list(TAUGHT.values()), (
        "in the order of the questions, which is not that of length"
    )
    assert loaded == [0], "torch gives back the memory of what nobody holds, when it is told to"


def test_a_server_has_time_to_read_its_weights_twice(tmp_path: Path) -> None:
    assert ready_seconds(tmp_path) == READY_SECONDS

    for number in range(14):
        with (tmp_path / f"model-{number:05}-of-00014.safetensors").open("wb") as file:
            file.truncate(4_680_000_000)  # no bytes are written

    assert ready_seconds(tmp_path) > 40 * 60, "Qwen3-32B from a volume of 50 MB a second"
