"""A profile of the style line, run here to its end: each step in its image's environment, on a narrow Qwen2.5.

Both releases are registered, and the small one is served by the command of its runtime on a cluster.
"""

import os
import time
from collections.abc import Container, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import httpx
import orjson

from pipelines.execute.environments.environments import make_environment
from pipelines.execute.environments.stage_environments import PRESENT, image_name
from pipelines.execute.execution import check_keys, prepare_run, run_lock, run_stages
from pipelines.execute.rundir import RunDir
from pipelines.lines.config import load_style_config
from pipelines.lines.style import STYLE, StyleRunConfig
from qinglan.config import load_yaml, merge_settings
from qinglan.errors import GateHeldError, QinglanError
from qinglan.lineage.signing.keys import KEYS_VARIABLE
from qinglan.models.base_weights import WEIGHTS_VARIABLE
from qinglan.processes.services import start_command
from standins.samples.style import write_style_sample
from tests.rehearsal.differences import setting_differences
from tests.rehearsal.narrow_qwen2 import CONFIG, NARROW, write_narrow_qwen2
from tests.rehearsal.progress import StepTime, recorded_step
from tests.wide_limits.sitecustomize import wide_limits

STYLE_PROFILES = {f"style-{profile}": profile for profile in ("a100", "cpu", "one-gpu-24")}
"""Profiles of the style line by their names on the command line."""

ROWS, SEED = 400, 3
"""Size and seed of the sample: one label is the most frequent, which is all that the gate's baseline learns."""

STAGES = STYLE.until(STYLE.last)
SHOWN = ("prepare", "base", "style", "evaluate", "register", "distil")
"""Stages whose settings are compared: the gates and the small model's evaluation have the evaluation's."""

RUNTIME = Path(__file__).parents[2] / "manifests" / "base" / "runtimes" / "style-onnx.yaml"
SERVED_ROWS = 20
SAME = 1e-4
"""Difference of a served probability from the judged one that still counts as the same."""

SIZES: dict[str, Any] = {
    "prepare": {"cross_fit_below": 0},
    "style": {"learning_rate": 2e-3}, "distil": {"learning_rate": 2e-3, "epochs": 1.0},
    "evaluate": {"draws": 1_000, "examples": 1, "blind_rows": 5},
}  # fmt: skip
"""Sizes that take minutes here. So few rows would be cross-fitted, which leaves no test for the small model, so
a test is locked away all the same. The learning rates are those of a small model with random weights."""

DEVICE: dict[str, Any] = {"style": {"device": "cpu"}, "distil": {"device": "cpu"}}

GATE: dict[str, Any] = {"evaluate": {
    "baseline_c": [1e-5],
    "gate": {
        "rows": 20, "class_rows": 1, "p": 1.0, "class_margin": 1.0, "ece": 1.0, "ece_worse": 1.0,
        "teacher_margin": 1.0,
    },
}}  # fmt: skip
"""A gate that promotes a model with random weights: the baseline is so regularised that it predicts one label. It is
beyond the limits, which PYTHONPATH takes away in the steps."""

WIDE_LIMITS = Path(__file__).parents[1] / "wide_limits"


class StyleRehearsal(NamedTuple):
    """A profile's rehearsal in a folder."""

    name: str
    """The profile's name on the command line."""

    root: Path
    rows: int = ROWS

    @property
    def profile(self) -> str:
        return STYLE_PROFILES[self.name]

    @property
    def run(self) -> RunDir:
        return RunDir(self.root / "run")

    @property
    def weights(self) -> Path:
        return self.root / "weights"

    def profile_config(self) -> StyleRunConfig:
        """The profile's configuration."""
        return load_style_config(self.profile, labelled=self.root / "data")

    def here(self) -> StyleRunConfig:
        """The same with the settings above."""
        changed = merge_settings(merge_settings(SIZES, DEVICE), GATE)
        with wide_limits():
            return load_style_config(self.profile, labelled=self.root / "data", **changed)


def unset_differences(rehearsal: StyleRehearsal) -> list[str]:
    """Differences that no setting shows."""
    profile = rehearsal.profile_config()
    sizes = ", ".join(f"{name} {CONFIG[name]} -> {value}" for name, value in NARROW.items())
    lines = [
        f"{profile.base.model}: its files with random weights, {sizes}",
        f"labelled answers: a sample of {rehearsal.rows}",
    ]
    if profile.style.device == "cuda":
        lines.append("arithmetic: bfloat16 -> float32, as in every training of this line on a CPU")
    lines.append("packages: none differs; the lock of the image style is installed, and its torch finds no GPU")
    return lines


def begin_style(name: str, folder: Path, done: Container[str]) -> Iterator[StepTime]:
    """Print what differs from the profile; the steps that are not done run as they are taken."""
    rehearsal = StyleRehearsal(name, folder)
    print(f"{name}: what differs from the profile")
    for difference in setting_differences(rehearsal.profile_config(), rehearsal.here(), SHOWN):
        print(f"  {difference}")
    for line in unset_differences(rehearsal):
        print(f"  {line}")
    return rehearse_style(rehearsal, done)


def rehearse_style(rehearsal: StyleRehearsal, done: Container[str]) -> Iterator[StepTime]:
    """Run the whole line, then serve the small model; yields the time of each. An error ends it."""
    images = {name: image_name(STYLE.stages[name].load_component()) for name in STAGES}
    server = runtime_container()
    images["serve"] = server["image"].rpartition("/")[2].partition(":")[0]
    environments = {image: str(make_environment(image)) for image in sorted({*images.values()} - {PRESENT})}
    variables = {
        WEIGHTS_VARIABLE: rehearsal.weights,
        KEYS_VARIABLE: rehearsal.root / "keys",
        "PYTHONPATH": WIDE_LIMITS,
    }
    with patch.dict(os.environ, {name: str(path.resolve()) for name, path in variables.items()}):
        check_keys()
        if STYLE.last not in done:
            write_inputs(rehearsal)
            with run_lock(rehearsal.run):
                steps = run_line(
                    rehearsal, {name: environments[images[name]] for name in STAGES if images[name] in environments}
                )
            yield from (recorded_step(rehearsal.name, name, images[name], record) for name, record in steps.items())
        if "serve" not in done:
            clock = time.monotonic()
            release = rehearsal.run.shown("small_release")
            note = check_served(rehearsal, server_command(server, environments[images["serve"]], release))
            yield StepTime(rehearsal.name, "serve", images["serve"], round(time.monotonic() - clock, 1), note)


def write_inputs(rehearsal: StyleRehearsal) -> None:
    """The labelled answers, and the base model in the folder of weights by its public name."""
    data = rehearsal.root / "data"
    write_style_sample(data, rehearsal.rows, seed=SEED)
    texts = [row["input"] for row in orjson.loads((data / "style.json").read_bytes())]
    write_narrow_qwen2(rehearsal.weights / rehearsal.here().base.model, texts)


def run_line(rehearsal: StyleRehearsal, pythons: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Execute all stages as `qinglan style run` does; the record of each. A gate that holds is an error."""
    run, inputs = rehearsal.run, {"labelled": (rehearsal.root / "data").resolve()}
    prepare_run(STYLE, rehearsal.here(), run, STAGES, alone=False)
    record = run_stages(STYLE, run, STAGES, inputs, alone=False, quiet=False, pythons=pythons)
    held = [verdict for name in ("verdict", "small_verdict") if (verdict := record[name]).get("word") == "hold"]
    if held:
        raise GateHeldError(f"The relaxed gate holds: {' '.join(held[0]['reasons'])}")
    return {name: record["steps"][name] for name in STAGES}


def check_served(rehearsal: StyleRehearsal, command: list[str]) -> str:
    """Serve the small release; the answer says how many answers were as they were judged, and another is an error."""
    files = rehearsal.run.files
    texts = [orjson.loads(line)["input"] for line in (files / "style_rows" / "test.jsonl").read_bytes().splitlines()]
    judged = [orjson.loads(line)["model"] for line in (files / "small_predictions.jsonl").read_bytes().splitlines()]
    rows = list(zip(texts, judged, strict=True))[:SERVED_ROWS]
    with start_command(command, "style", rehearsal.run.logs / "serve.log") as announced:
        url = announced()
        for text, row in rows:
            served = httpx.post(f"{url}/predict", json={"text": text}, timeout=60).raise_for_status().json()
            differences = [abs(served["probabilities"][name] - p) for name, p in row["probabilities"].items()]
            if max(differences) > SAME:
                raise QinglanError(
                    f"{text!r}: the served probabilities differ by {max(differences):g} from the judged."
                )
    return f"{len(rows)} served answers have the judged probabilities"


def runtime_container() -> dict[str, Any]:
    """The container that serves a small style model on a cluster."""
    container: dict[str, Any] = load_yaml(RUNTIME)["spec"]["containers"][0]
    return container


def server_command(container: Mapping[str, Any], python: str, release: Path) -> list[str]:
    """The runtime's command with this release, on a free port of loopback."""
    here = {"model": str(release.resolve() / "model"), "name": "style-small", "host": "127.0.0.1", "port": "0"}
    names = [option.partition("=")[0].removeprefix("--") for option in container["args"]]
    values = [here.get(name, option.partition("=")[2]) for name, option in zip(names, container["args"], strict=True)]
    return [python, *container["command"][1:], *(f"--{n}={v}" for n, v in zip(names, values, strict=True))]
