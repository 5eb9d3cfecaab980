"""The GPU checks' own code, tiny and on a CPU: what runs on somebody's card next is known to run."""

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from components.training.ppo.config import PpoConfig
from components.training.sft.config import SftConfig
from tests.gpu import adapter, wheels
from tests.gpu.card_memory import peak_gib
from tests.gpu.checks import CHECKS, DRY, Device, fits, step_figures
from tests.gpu.engine import compare_texts, compilers_out_of_reach
from tests.gpu.pack import WHEELS, locked_versions, pack
from tests.gpu.ppo import ppo_config
from tests.gpu.report import Measured, Result, table
from tests.gpu.sft import sft_config
from tests.gpu.training_files import read_training_file
from tests.gpu.wheels import ROOT
from tests.models.tiny_rewriter import tiny_model
from tests.processes.forkserver import forked


@pytest.mark.slow
@pytest.mark.parametrize("name", CHECKS)
def test_each_check_runs_to_its_end(name: str) -> None:
    result = CHECKS[name](Device("cpu"), DRY)

    assert result.passed, table([result])
    assert result.figures and all(figure.value == figure.value for figure in result.figures)


@pytest.mark.slow
def test_without_a_gpu_each_check_says_so_and_the_last_line_is_json() -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU: `make test-gpu` measures it")
    ran = subprocess.run(forked("tests.gpu"), cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)

    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count("skipped: needs a GPU") == len(CHECKS)
    result = json.loads(ran.stdout.splitlines()[-1])
    assert result["machine"]["gpu"] == "none" and set(result["checks"]) == set(CHECKS)


def test_fit_may_promise_more_than_was_measured_and_never_less() -> None:
    assert fits(10, 10.5) and not fits(10, 9.9) and not fits(10, 22)
    assert fits(0, 5) and fits(10, None)


def test_steps_are_timed_without_the_first() -> None:
    figures = step_figures([0.0, 9.0, 10.0, 11.0], tokens=100, peak=3.0, estimate=4.0)

    assert figures[0] == Measured("seconds a step", 1.0)
    assert [figure.value for figure in figures] == [1.0, 100.0, 3.0, 4.0]


def test_the_table_says_why_a_check_was_skipped() -> None:
    assert table([Result("sft", None, note="no GPU")]) == "sft        skipped: no GPU"


def test_every_carried_package_is_in_the_lock() -> None:
    locked = {line.partition("==")[0] for line in locked_versions()}

    assert set(WHEELS) <= locked


@pytest.mark.slow
def test_a_python_without_wheels_is_refused_and_leaves_no_tree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")

    with pytest.raises(SystemExit, match=r"no wheels for Python 2\.7.*3\.11 or newer"):
        pack(tmp_path / "packed", "2.7")
    assert not list(tmp_path.iterdir())


def test_a_carried_wheel_is_unpacked_where_its_module_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wheels, "CARRIED", tmp_path)
    monkeypatch.setattr(wheels, "UNPACKED", tmp_path / "unpacked")
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("carried_along-1.0-py3-none-any.whl", "numpy-1.0-py3-none-any.whl"):
        with zipfile.ZipFile(tmp_path / name, "w") as wheel:
            wheel.writestr(f"{name.partition('-')[0]}/__init__.py", "VALUE = 7\n")

    missing = wheels.use_carried_wheels()

    assert missing == ["carried_along"]
    assert not (tmp_path / "unpacked" / "numpy").exists(), "the machine has its own"
    assert __import__("carried_along").VALUE == 7


@pytest.mark.parametrize("training", ["one-gpu-24", "one-gpu-80"])
def test_whole_stages_are_measured_with_a_training_files_own_parts_of_a_batch(training: str, tmp_path: Path) -> None:
    values = read_training_file(training)

    learned, competed = sft_config(values), ppo_config(values, tmp_path)

    assert (learned.batch, learned.gpus) == (values["sft"].get("batch", SftConfig().batch), 1)
    assert competed.micro_batch == PpoConfig.parse(values["ppo"], "test").micro_batch
    assert competed.hardware.offload == values["ppo"]["hardware"].get("offload", False)


def test_a_cards_readings_give_the_most_that_was_in_use() -> None:
    lines = "2026/11/26 14:00:09.1, 9783, 9\n2026/11/26 14:00:09.4, 15360, 3\n2026/11/26 14:00:09.7, 99"

    assert peak_gib(lines) == 15 and peak_gib("") == 0


def test_texts_of_the_adapter_the_base_and_by_heart_are_counted_beside_the_merged_ones() -> None:
    counts = compare_texts(["a", "b", "c"], ["a", "b", "x"], ["x", "b", "x"], ["a", "b", "c"])

    assert counts == {"of": 3, "adapter's": 2, "the base's": 1, "learned": 3, "different texts": 3}


@pytest.mark.slow
def test_an_adapter_learned_by_heart_is_written_and_merged_as_ppo_exports_it(tmp_path: Path) -> None:
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    base = tiny_model(tmp_path / "base")
    before, after = (adapter.write(tmp_path / str(steps), base, "cpu", steps=steps, rate=0.02) for steps in (1, 30))

    assert after < before / 2
    ids = torch.arange(3, 30).unsqueeze(0)
    plain = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "30" / "merged", dtype=torch.float32)
    with torch.inference_mode():
        without = plain(input_ids=ids).logits
        both = PeftModel.from_pretrained(plain, tmp_path / "30" / "adapter")(input_ids=ids).logits
        apart = (merged(input_ids=ids).logits - both).abs().max()
    assert apart < (without - both).abs().max() / 50


def test_the_engine_is_tried_where_no_compiler_but_gcc_is_in_reach(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("nvcc", "g++", "c++", "gcc", "as"):
        (programs / name).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(programs))

    with compilers_out_of_reach(tmp_path / "hidden"):
        inside = {name: shutil.which(name) is not None for name in ("nvcc", "g++", "c++", "gcc", "as")}

    assert inside == {"nvcc": False, "g++": False, "c++": False, "gcc": True, "as": True}
    assert shutil.which("nvcc")
