"""The first steps of a rehearsal: the base from the weights folder, its SFT and merge, in the image's environment.

The whole is `make rehearse`. The environment of the image `sft` is installed the first time.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import patch

import orjson
import pytest

from pipelines.execute.environments.environments import make_environment
from pipelines.execute.local_execution import read_job
from pipelines.lines.rewriter import REWRITER
from qinglan.models.base_reference import is_reference
from tests.processes.forked_runs import STEP, SWIFT, fork_environment, forks_variables
from tests.processes.forkserver import socket_path
from tests.rehearsal.narrow_qwen3 import NARROW
from tests.rehearsal.rehearse import SIZES, Rehearsal, rehearse

pytestmark = pytest.mark.slow


def image_forks() -> dict[str, str]:
    """Variables by which the image's steps and trainings are forks."""
    python = str(make_environment("sft", cpu=True))
    path = socket_path(SWIFT, python)
    return forks_variables(dict.fromkeys((STEP, "swift.cli.sft"), path), python)


def test_sft_of_qwen3_runs_with_the_packages_of_its_image_and_leaves_merged_weights_and_the_adapter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two steps, each with a validation: each computes with all 151,936 tokens of Qwen3, for two CPU seconds. The
    teacher writes no further rows, so that SFT trains once.

    What this image's Python runs is forked from one that has imported ms-swift. The base's weights are written in
    this process, which has imported torch, not in one of their own.
    """
    monkeypatch.setattr(
        "tests.rehearsal.rehearse.ProcessPoolExecutor", lambda workers, _: ThreadPoolExecutor(workers)
    )
    monkeypatch.setitem(SIZES, "augment", {"hindsight_calls": 0, "pseudo_calls": 0})
    rehearsal = Rehearsal("a100x4", tmp_path, 12, taught=1)

    with patch.dict(os.environ, fork_environment(models=False)), patch.dict(os.environ, image_forks()):
        steps = list(rehearse(rehearsal, REWRITER.until("sft")))

    assert [(step.stage, step.image) for step in steps][-2:] == [("base", "sft"), ("sft", "sft")]
    assert is_reference(rehearsal.run.shown("base_model")), "no step has a copy of the weights"
    model = rehearsal.run.shown("sft_model")
    config = orjson.loads((model / "config.json").read_bytes())
    assert config["model_type"] == "qwen3" and config["hidden_size"] == NARROW["hidden_size"]
    adapter = orjson.loads((model / "adapter" / "adapter_config.json").read_bytes())
    assert adapter["r"] == rehearsal.profile_config().sft.lora_rank and (model / "model.safetensors").is_file()
    assert (rehearsal.run.step_record("sft") or {})["facts"]["steps"] >= 1
    assert "/environments/sft-" in read_job(rehearsal.run).pythons["sft"]
