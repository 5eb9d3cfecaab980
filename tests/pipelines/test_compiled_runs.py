"""The YAML itself, loaded as KFP loads it and run here to its end, behind a gate that promotes.

What is held ends before that branch: test_style.py runs the same graph, test_compile.py reads the condition.
"""

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


def run(folder: Path) -> dict[str, Any]:
    """Compile the laptop profile with a gate that promotes, run the YAML; the answer is each step's record."""
    write_style_sample(folder / "data", 400, seed=3)
    profile = folder / "promoted.yaml"
    profile.write_text(yaml.safe_dump(merged(merged(load_yaml(STYLES / "laptop.yaml"), SHORT), BEATEN)))
    [graph] = compile_targets([style_target(str(profile))], folder / "graphs", {})
    records = folder / "records"
    records.mkdir()
    env = {**os.environ, "QINGLAN_RECORDS": str(records), "QINGLAN_CACHE": str(folder / "cache")}
    words = [sys.executable, "-c", PROGRAM, str(graph), str(folder / "data"), str(folder / "artifacts")]
    ran = subprocess.run(words, env=env, capture_output=True, text=True, timeout=1200, check=False)
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-2000:]
    found = {stage: records / f"{stage}.json" for stage in STYLE.stages}
    return {stage: orjson.loads(path.read_bytes()) for stage, path in found.items() if path.exists()}


def said(folder: Path, step: str, artifact: str) -> str:
    """What an artifact for the page says."""
    [written] = (folder / "artifacts").glob(f"*/{step}/{artifact}*")
    return written.read_text(encoding="utf-8")


def test_what_is_promoted_becomes_a_release(tmp_path: Path) -> None:
    promoted = run(tmp_path)

    assert tuple(promoted) == STYLE.until("distil")
    assert {record["status"] for record in promoted.values()} == {"done"}
    assert promoted["register"]["facts"]["name"] == "house/tried"  # the run's own word for it
    assert said(tmp_path, "gate-style", "decision").startswith("**Promote**")
    assert promoted["register"]["facts"]["release"] in said(tmp_path, "register-style", "summary")
