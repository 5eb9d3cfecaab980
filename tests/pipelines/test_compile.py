"""The compiled graph in the repository is the one that the code compiles to, byte for byte."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from pipelines.compiling import COMPILED


def test_the_golden_copy_is_fresh_under_any_hash_seed(tmp_path: Path) -> None:
    for seed in ("0", "4242"):
        out = tmp_path / f"{seed}.yaml"
        command = [sys.executable, "-m", "pipelines.compiling", str(out)]
        subprocess.run(command, check=True, env={**os.environ, "PYTHONHASHSEED": seed})

        assert out.read_bytes() == COMPILED.read_bytes(), "run `make golden`"


def spec() -> Any:
    return next(yaml.safe_load_all(COMPILED.read_text(encoding="utf-8")))


def test_the_graph_is_the_thread() -> None:
    tasks = spec()["root"]["dag"]["tasks"]
    parents = {name: sorted(task.get("dependentTasks", [])) for name, task in tasks.items()}

    assert parents == {
        "importer": [],
        "importer-2": [],
        "generate": ["importer"],
        "validate": ["generate", "importer-2"],
        "convert": ["validate"],
    }


def test_no_step_installs_anything_or_asks_for_a_key() -> None:
    text = COMPILED.read_text(encoding="utf-8")

    assert "pip install" not in text
    assert "api_key" not in text.lower()


def test_paid_steps_are_never_answered_from_kfps_cache() -> None:
    tasks = spec()["root"]["dag"]["tasks"]

    assert "enableCache" not in tasks["generate"]["cachingOptions"]
    assert "enableCache" not in tasks["validate"]["cachingOptions"]
    assert tasks["convert"]["cachingOptions"]["enableCache"] is True
