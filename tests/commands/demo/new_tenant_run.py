"""Runs the whole line for a tenant that the project has never heard of, with the guide's two settings."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import yaml

from pipelines.lines.config import CONFIGS, TRAINING
from qinglan.config import load_yaml, merge_settings
from standins.samples import write_sample

ROOT = Path(__file__).parents[3]
SHORT = {
    "base": {"tiny": {"hidden": 32, "layers": 2, "heads": 2, "steps": 120, "learning_rate": 6e-3}},
    "augment": {"pseudo_calls": 90},
    "sft": {"epochs": 4.0, "validations": 4, "batch": 8},
    "ppo": {"steps": 2, "validations": 2, "collection": 16, "batch": 16, "dev_rows": 16},
    "evaluate": {"examined_rows": 10, "agreement_rows": 5, "latency_rows": 3, "draws": 1_000, "blind_rows": 4},
    # More requests than there will be: this canary is always taken back.
    "loopback": {
        "requests_a_second": 8,
        "rollout": {"steps": [50, 100], "stepSeconds": 5, "minimumSample": 1000000, "deadlineSeconds": 5},
    },
}
"""Trainings too short to learn much."""

SHORTEST = merge_settings(
    {name: value for name, value in SHORT.items() if name != "loopback"},
    {
        "base": {"tiny": {"steps": 20}},
        "sft": {"epochs": 1.0, "validations": 1},
        "ppo": {"steps": 1, "validations": 1},
    },
)
"""Trainings of a step or two, to see that a run comes to its report."""


class Ran(NamedTuple):
    code: int
    record: Any
    errors: str
    words: list[str]
    out: Path


def qinglan(words: list[str], out: Path, environment: dict[str, str] | None = None) -> Ran:
    command = [sys.executable, "-c", "from commands.cli import main; main()", *words]
    run = subprocess.run(command, capture_output=True, text=True, timeout=1200, check=False, env=environment)
    return Ran(run.returncode, orjson.loads(run.stdout or "null"), run.stderr, words, out)


def guide_settings(guide: str = "docs/guide.md") -> Any:
    """The guide's two settings, as a person would copy them."""
    blocks = re.findall(r"   ```yaml\n(   generate:\n.*?)   ```\n", (ROOT / guide).read_text(encoding="utf-8"), re.S)
    assert len(blocks) == 1
    return yaml.safe_load(blocks[0])


def acme(folder: Path, settings: Any) -> list[str]:
    """Words of a command: tenant acme, its sheet, knowledge base and profile, with stand-ins for paid models."""
    write_sample("fivedoctors", folder, conversations=30, seed=5)
    demo = load_yaml(CONFIGS / "fivedoctors" / "demo.yaml")
    for role, model in (("teacher", "acme"), ("judge", "acme"), ("examiner", "acme-examiner")):
        demo["gateway"][role] = demo["gateway"][role] | {"model": model}
    laptop = load_yaml(TRAINING / "laptop.yaml")
    profile = merge_settings(merge_settings(merge_settings(laptop, demo), SHORT), settings)
    (folder / "acme.yaml").write_text(yaml.safe_dump(profile), encoding="utf-8")
    words = ["acme", "--profile", str(folder / "acme.yaml"), "--questions", str(folder / "questions.xlsx")]
    return [*words, "--knowledge-base", str(folder / "knowledge_base.jsonl"), "--json"]
