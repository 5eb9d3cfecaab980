"""Stages in environments of their own, on a machine with GPUs and without containers."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from kfp.local.subprocess_task_handler import replace_python_executable

from commands.run import run
from commands.run.run import run_pipeline
from components.training.sft.component import sft
from pipelines.execute.environments import stage_environments
from pipelines.execute.environments.stage_environments import (
    CHECKED,
    check_imports,
    compiler_problem,
    driver_problem,
    prepare_environments,
    stage_images,
)
from pipelines.graph.graph import with_interpreter
from pipelines.lines.config import load_config
from pipelines.lines.rewriter import REWRITER
from qinglan.errors import ConfigError
from standins.samples import write_sample

STAGES = REWRITER.until("register")


def test_stages_of_a_profile_for_gpus_run_in_the_environments_of_their_images() -> None:
    images = stage_images(REWRITER, load_config("fivedoctors", "gpt"), STAGES)

    assert {name: images[name] for name in ("base", "sft", "ppo")} == {"base": "sft", "sft": "sft", "ppo": "ppo"}
    assert "evaluate" in images
    assert not images.keys() & {"generate", "validate", "convert", "gate", "register"}, "they need no torch"


def test_a_laptop_runs_every_stage_in_the_environment_that_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(stage_environments, "make_environment")

    assert prepare_environments(REWRITER, load_config("fivedoctors", "demo"), STAGES) == {}


@pytest.mark.parametrize("script", ['exec /usr/bin/env python3 "$@"', "echo 'Illegal instruction' >&2\nexit 132"])
def test_an_import_that_fails_or_ends_the_interpreter_is_an_error_that_quotes_it(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage_environments, "IMPORTED", {"sft": ("nothing_of_this_name",)})
    python = environment(tmp_path / "sft-1", script)

    with pytest.raises(ConfigError, match=r"No module named|Illegal instruction"):
        check_imports("sft", python)
    assert not (tmp_path / "sft-1" / CHECKED).exists()


def environment(folder: Path, script: str) -> Path:
    """An environment whose Python is this script."""
    python = folder / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\necho started >> {folder}/starts\n{script}\n")
    python.chmod(0o755)
    return python


def test_imports_that_worked_are_not_tried_again_by_the_next_run(tmp_path: Path) -> None:
    python = environment(tmp_path / "ppo-1", "")

    for _ in range(3):
        check_imports("ppo", python)

    assert (tmp_path / "ppo-1" / "starts").read_text() == "started\n"


@pytest.mark.parametrize(
    ("driver", "needed", "problem"),
    [("13.0", "13.0.2", ""), ("13.0", "13.3", ""), ("14.1", "13.0", ""), ("12.4", "13.0.2", "runs CUDA 12.4 at most"),
     ("", "13.0", "libcuda.so.1 is missing"), ("", "", "")],
)  # fmt: skip
def test_a_driver_of_an_older_release_of_cuda_is_too_old(driver: str, needed: str, problem: str) -> None:
    answer = driver_problem(driver, needed)

    assert (problem in answer) if problem else answer == ""


def test_a_driver_that_is_too_old_is_refused_before_anything_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage_environments, "driver_cuda", lambda: "12.4")
    monkeypatch.delattr(stage_environments, "make_environment")

    with pytest.raises(ConfigError, match=r"^ppo: NVIDIA's driver is too old"):
        prepare_environments(REWRITER, load_config("fivedoctors", "gpt"), ("ppo",))


def test_a_machine_without_a_compiler_or_pythons_headers_cannot_run_triton(tmp_path: Path) -> None:
    header = tmp_path / "Python.h"

    assert compiler_problem(None, header) and compiler_problem("/usr/bin/gcc", header)
    header.touch()
    assert compiler_problem("/usr/bin/gcc", header) == ""


def interpreter(path: Path) -> Path:
    """This Python behind a program that notes its path."""
    path.parent.mkdir(parents=True)
    path.write_text(f'#!/bin/sh\necho "started by $0"\nexec "{sys.executable}" "$@"\n')
    path.chmod(0o755)
    return path


def test_a_step_starts_with_its_interpreter_whatever_its_path_is_called(tmp_path: Path) -> None:
    python = interpreter(tmp_path / "a python3 of 'hers'" / "python")
    command = with_interpreter(sft.component_spec.implementation.container.command, str(python))

    assert command[3] == sft.component_spec.implementation.container.command[3], "the component's own code"
    local = replace_python_executable(command, "/kfp/puts/its/own/here")
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run([*local, "--help"], env=environment, capture_output=True, text=True, check=False)
    assert f"started by {python}" in done.stdout, done.stderr


@pytest.mark.slow
@pytest.mark.usefixtures("forks")
def test_a_run_starts_each_stage_with_the_interpreter_of_its_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_sample("fivedoctors", tmp_path, conversations=8, seed=5)
    python = interpreter(tmp_path / "environment" / "python")
    files: dict[str, Any] = {name: tmp_path / f"{name}.{end}" for name, end in FILES.items()}
    monkeypatch.setattr(run, "prepare_environments", lambda line, config, stages: {"convert": str(python)})

    record = run_pipeline(load_config("fivedoctors", "demo", **files), tmp_path / "run", until="convert", quiet=True)

    assert record["status"] == "done"
    log = (tmp_path / "run/logs/run.log").read_text()
    assert log.count(f"started by {python}") == 1, "convert alone"
    statement = json.loads((tmp_path / "run/records/convert.json").read_bytes())
    assert statement["status"] == "done"


FILES = {"questions": "xlsx", "knowledge_base": "jsonl"}
