"""The YAML itself, loaded as KFP loads it and run here to its end: where the gate promotes, and where it holds."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from pipelines.compiling import compile_targets, style_target
from pipelines.config import STYLES, merged
from pipelines.lines import STYLE
from qinglan.config import load_yaml
from qinglan.samples.style import write_style_sample
from tests.pipelines.test_style import BEATEN, SHORT

pytestmark = pytest.mark.slow

PROGRAM = """
import sys
from kfp import components, local

graph, labelled, root = sys.argv[1:]
local.init(runner=local.SubprocessRunner(use_venv=False), pipeline_root=root)
components.load_component_from_file(graph)(labelled=labelled, release_name="house/tried")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compiled")
    write_style_sample(folder / "data", 400, seed=3)
    return folder


def run(folder: Path, name: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Compile the laptop profile with these settings, run the YAML; the answer is each step's record."""
    profile = folder / f"{name}.yaml"
    profile.write_text(yaml.safe_dump(merged(load_yaml(STYLES / "laptop.yaml"), settings)))
    [graph] = compile_targets([style_target(str(profile))], folder / "graphs", {})
    records = folder / name / "records"
    records.mkdir(parents=True)
    env = {**os.environ, "QINGLAN_RECORDS": str(records), "QINGLAN_CACHE": str(folder / "cache")}
    words = [sys.executable, "-c", PROGRAM, str(graph), str(folder / "data"), str(folder / name / "artifacts")]
    ran = subprocess.run(words, env=env, capture_output=True, text=True, timeout=1200, check=False)
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-2000:]
    found = {stage: records / f"{stage}.json" for stage in STYLE.stages}
    return {stage: orjson.loads(path.read_bytes()) for stage, path in found.items() if path.exists()}


def said(folder: Path, name: str, step: str, artifact: str) -> str:
    """What an artifact for the page says."""
    [written] = (folder / name / "artifacts").glob(f"*/{step}/{artifact}*")
    return written.read_text(encoding="utf-8")


def test_what_is_held_gets_no_further_and_what_is_promoted_becomes_a_release(folder: Path) -> None:
    held = run(folder, "held", SHORT)

    assert tuple(held) == STYLE.until("gate")
    assert held["gate"]["facts"]["verdict"] == "hold"
    assert said(folder, "held", "gate-style", "decision").startswith("**Hold**\n\n- ")

    promoted = run(folder, "promoted", merged(SHORT, BEATEN))

    assert tuple(promoted) == STYLE.until("distil")
    assert {record["status"] for record in promoted.values()} == {"done"}
    assert promoted["register"]["facts"]["name"] == "house/tried"  # the run's own word for it
    assert promoted["style"]["facts"]["reused"] == 1  # the gate's settings are no reason to train again
    assert said(folder, "promoted", "gate-style", "decision").startswith("**Promote**")
    assert promoted["register"]["facts"]["release"] in said(folder, "promoted", "register-style", "summary")
