"""One profile's steps, each by its KFP component in the environment of its own image's lock.

The line is the one that `qinglan run` executes; the paid services are stand-ins on loopback, behind the gateway. What
a cluster does after it, deploying and serving the release, is in release.py.
"""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import orjson
import yaml

from commands.demo.held_release import release_held
from commands.run.run import run_gateway
from components.training.ppo.config import Hardware
from pipelines.execute.environments.environments import make_environment
from pipelines.execute.environments.stage_environments import PRESENT, stage_images
from pipelines.execute.execution import check_keys, gate_verdict, prepare_run, run_lock, run_stages
from pipelines.execute.rundir import RunDir
from pipelines.lines.config import load_config
from pipelines.lines.rewriter import REWRITER, RunConfig
from pipelines.lines.sheet import read_sheet
from qinglan.config import merge_settings
from qinglan.lineage.signing.keys import KEYS_VARIABLE
from qinglan.models.base_reference import BY_REFERENCE_VARIABLE
from qinglan.models.base_weights import WEIGHTS_VARIABLE
from qinglan.sizing.shape import known_shapes
from qinglan.terminal import say
from standins.samples import write_sample
from tests.rehearsal import release
from tests.rehearsal.narrow_qwen3 import STEPS, write_critic, write_narrow_qwen3
from tests.rehearsal.progress import StepTime, recorded_step

TENANT = "fivedoctors"
DATA = ("generate", "validate", "label", "convert", "augment")
STAGES = (*REWRITER.until("register"), "deploy", "serve")
"""Steps of a rehearsal; the last is the release's life after the line."""

SIZES: dict[str, Any] = {
    "sft": {"learning_rate": 1e-3, "epochs": 1.0, "validations": 2},
    "ppo": {
        "collection": 16, "batch": 16, "accumulation": 2, "ppo_epochs": 1, "steps": 2, "validations": 2,
        "max_new_tokens": 24, "dev_rows": 16, "actor_learning_rate": 5e-3,
        "hardware": {"rollout_memory": 0.2, "reward_workers": 1},
    },
    "evaluate": {
        "examined_rows": 10, "agreement_rows": 10, "latency_rows": 5, "draws": 1_000, "examples": 1, "blind_rows": 2,
    },
}  # fmt: skip
"""Sizes that take minutes here. The learning rates are those of a small model."""

DEVICE: dict[str, Any] = {
    "sft": {"device": "cpu"},
    "ppo": {"hardware": {"device": "cpu", "plugin": "standins.verl_cpu.vllm_device"}},
    "evaluate": {"engine": "vllm", "vllm_options": [*release.VLLM_HERE]},
}  # fmt: skip
"""The device."""

PROCESSES = 2
"""PPO's processes that two cores bear: on one machine, where they share actor, critic and vLLM's model, or on two.
`--processes` names another number."""

ENVIRONMENT = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
"""On a CPU: GB of vLLM's cache, which by default takes half of the machine's memory, and no binding to a core, where
it would wait for all others that are there."""


AFTER_PPO = ("evaluate", "gate", "register", "deploy", "serve")
NAMED_BY_PROFILE = frozenset({"store", "base"})
"""Settings that only name what is alike: the folder of a rehearsal's releases, the base's public name."""

POD_MODULES = Path(__file__).parent / "pods"


class Rehearsal(NamedTuple):
    """A profile's rehearsal in a folder."""

    profile: str
    root: Path
    conversations: int
    processes: int = PROCESSES
    taught: int = STEPS
    """Steps in which the base learns to end an answer; none is needed before PPO."""

    @property
    def run(self) -> RunDir:
        return RunDir(self.root / "run")

    def profile_config(self) -> RunConfig:
        """The configuration on A100s, with the stand-ins of paid services."""
        return self._config({"register": {"store": release.STORE}})

    def here(self) -> RunConfig:
        """The same with the settings above, on a small sample."""
        data = self.root / "data"
        files = {"questions": data / "questions.xlsx", "knowledge_base": data / "knowledge_base.jsonl"}
        store = {"register": {"store": str(self.root / "store")}}
        hardware = {"ppo": {"hardware": processes_here(self.profile_config().ppo.hardware, self.processes)}}
        changes = merge_settings(merge_settings(SIZES, DEVICE), hardware)
        return self._config(merge_settings(changes, {**files, **store}))

    def _config(self, changes: Mapping[str, Any]) -> RunConfig:
        return load_config(TENANT, "demo", training=self.profile, deploy={"namespace": TENANT}, **changes)


def processes_here(hardware: Hardware, most: int) -> dict[str, int]:
    """Settings for at most so many of a profile's processes, and one of each of its machines at least."""
    processes = max(1, min(hardware.per_node, most // hardware.nodes))
    return {"per_node": processes, "tensor_parallel": min(hardware.tensor_parallel, processes)}


def same_end(first: Rehearsal, second: Rehearsal) -> bool:
    """True if the steps after PPO run the same commands in both rehearsals, on models that are laid out alike."""
    return _end(first) == _end(second)


def _end(rehearsal: Rehearsal) -> tuple[object, ...]:
    config = rehearsal.here()
    settings = {name: values for name, values in config.stages().items() if name in AFTER_PPO}
    settings["register"], settings["deploy"] = (
        {key: value for key, value in settings[name].items() if key not in NAMED_BY_PROFILE}
        for name in ("register", "deploy")
    )
    return settings, config.sft.tuner, config.ppo.lora, known_shapes()[config.base.model].tied


def rehearse(rehearsal: Rehearsal, stages: Sequence[str]) -> Iterator[StepTime]:
    """Run the data stages together and every later one alone; yields the time of each. An error ends it.

    Stages before the first of these are done.
    """
    config, run = rehearsal.here(), rehearsal.run
    images = stage_images(REWRITER, rehearsal.profile_config(), [name for name in stages if name in REWRITER.stages])
    images |= {"serve": release.SERVE_IMAGE} if "serve" in stages else {}
    pythons = {name: str(make_environment(image, cpu=True)) for name, image in images.items()}
    with _environment(rehearsal), run_lock(run):
        check_keys()
        if data := [name for name in stages if name in DATA]:
            write_sample(TENANT, rehearsal.root / "data", rehearsal.conversations, seed=0)
            run_step(config, run, data, pythons)
            with ProcessPoolExecutor(1, get_context("spawn")) as child:  # torch's GB leaves with it
                child.submit(write_weights, rehearsal).result()
            for name in data:
                record = run.step_record(name) or {}
                yield recorded_step(rehearsal.profile, name, images.get(name, PRESENT), record)
        for name in (name for name in stages if name not in DATA):
            started = time.monotonic()
            note = run_later_step(rehearsal, config, name, pythons)
            seconds = round(time.monotonic() - started, 1)
            yield StepTime(rehearsal.profile, name, images.get(name, PRESENT), seconds, note)


def run_later_step(rehearsal: Rehearsal, config: RunConfig, name: str, pythons: Mapping[str, str]) -> str:
    """Run the step; the answer is what its line of the result adds to its time."""
    run, rollouts = rehearsal.run, rehearsal.root / "rollouts"
    verdict = gate_verdict({"gate": run.step_record("gate")}, ("gate",))
    if name == "register" and verdict["word"] == "hold":
        release_held(config, run, verdict["reasons"])
    elif name == "deploy":
        assert config.deploy is not None
        rollout = release.deploy_to_file(run, config.deploy, rollouts)
        say(*yaml.safe_dump(rollout, sort_keys=False).splitlines())
    elif name == "serve":
        base = weights_folder(rehearsal) / config.base.model
        return str(release.serve_release(rollouts, run, base, pythons[name], rehearsal.root / "served"))
    else:
        run_step(config, run, [name], pythons)
    return ""


def run_step(config: RunConfig, run: RunDir, stages: Sequence[str], pythons: Mapping[str, str]) -> None:
    """Execute stages as `qinglan run` does, or one alone as `qinglan run --only` does."""
    alone = stages[0] not in DATA
    assert config.questions is not None and config.knowledge_base is not None
    inputs = {"questions": config.questions, "knowledge_base": config.knowledge_base}
    config = prepare_run(REWRITER, config, run, stages, alone)
    gateway = partial(run_gateway, config, run, stages, read_sheet(config))
    run_stages(REWRITER, run, tuple(stages), inputs, alone, False, gateway, pythons)


def write_weights(rehearsal: Rehearsal) -> None:
    """The folder of base weights, as a cluster's volume has it: models by their public names."""
    config = rehearsal.here()
    chats = (rehearsal.run.shown("chats") / "train.jsonl").read_bytes().splitlines()
    base = weights_folder(rehearsal) / config.base.model
    tied = known_shapes()[config.base.model].tied
    write_narrow_qwen3(base, [orjson.loads(line)["messages"] for line in chats], rehearsal.taught, tied=tied)
    if config.ppo.critic_model:
        write_critic(weights_folder(rehearsal) / config.ppo.critic_model, base)


def weights_folder(rehearsal: Rehearsal) -> Path:
    return rehearsal.root / "weights"


@contextmanager
def _environment(rehearsal: Rehearsal) -> Iterator[None]:
    """Keys and weights of this rehearsal alone; the base is handed on by reference, as on a cluster."""
    folders = {WEIGHTS_VARIABLE: weights_folder(rehearsal), KEYS_VARIABLE: rehearsal.root / "keys"}
    if rehearsal.here().ppo.hardware.nodes > 1:
        folders["PYTHONPATH"] = POD_MODULES
    values = {name: str(path.resolve()) for name, path in folders.items()} | {BY_REFERENCE_VARIABLE: "1"}
    with patch.dict(os.environ, ENVIRONMENT | values):
        yield
