"""One profile's steps, each by its KFP component in the environment of its own image's lock.

The line is the one that `qinglan run` executes; the paid services are stand-ins on loopback, behind the gateway.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from pipelines.config import load_config
from pipelines.environments import make_environment
from pipelines.execution import check_keys, prepare_run, run_lock, run_stages
from pipelines.rewriter import REWRITER, RunConfig
from pipelines.run import run_gateway
from pipelines.rundir import RunDir
from pipelines.sheet import read_sheet
from pipelines.stage_environments import stage_images
from qinglan.config import merge_settings
from qinglan.models.base_reference import BY_REFERENCE_VARIABLE
from qinglan.models.base_weights import WEIGHTS_VARIABLE
from standins.samples import write_sample
from tests.rehearsal.narrow_qwen3 import write_critic, write_narrow_qwen3

TENANT = "fivedoctors"
DATA = ("generate", "validate", "convert")

SIZES: dict[str, Any] = {
    "sft": {"learning_rate": 1e-3, "epochs": 1.0, "validations": 2},
    "ppo": {
        "collection": 16, "batch": 16, "accumulation": 2, "ppo_epochs": 1, "steps": 2, "validations": 2,
        "max_new_tokens": 24, "dev_rows": 16,
        "hardware": {"rollout_memory": 0.2, "reward_workers": 1},
    },
    "evaluate": {
        "examined_rows": 10, "agreement_rows": 10, "latency_rows": 5, "draws": 500, "examples": 1, "blind_rows": 2,
    },
}  # fmt: skip
"""Sizes that take minutes here. The learning rate is that of a small model."""

DEVICE: dict[str, Any] = {
    "sft": {"device": "cpu", "nodes": 1, "deepspeed": None},
    "ppo": {"hardware": {
        "device": "cpu", "plugin": "standins.verl_cpu.vllm_device", "nodes": 1, "per_node": 1, "tensor_parallel": 1,
    }},
}  # fmt: skip
"""The device, and as many processes as two cores bear."""


class StepTime(NamedTuple):
    profile: str
    stage: str
    image: str
    seconds: float


class Rehearsal(NamedTuple):
    """A profile's rehearsal in a folder."""

    profile: str
    root: Path
    conversations: int

    @property
    def run(self) -> RunDir:
        return RunDir(self.root / "run")

    def there(self) -> RunConfig:
        """The configuration on A100s, with the stand-ins of paid services."""
        return load_config(TENANT, "demo", training=self.profile)

    def here(self) -> RunConfig:
        """The same with the settings above, on a small sample."""
        data = self.root / "data"
        files = {"questions": data / "questions.xlsx", "knowledge_base": data / "knowledge_base.jsonl"}
        return load_config(TENANT, "demo", training=self.profile, **merge_settings(SIZES, DEVICE), **files)


def rehearse(rehearsal: Rehearsal, stages: Sequence[str]) -> Iterator[StepTime]:
    """Run the data stages together and every later one alone; yields the time of each. An error ends it."""
    config, run = rehearsal.here(), rehearsal.run
    write_sample(TENANT, rehearsal.root / "data", rehearsal.conversations, seed=0)
    images = stage_images(REWRITER, rehearsal.there(), stages)
    pythons = {name: str(make_environment(image, cpu=True)) for name, image in images.items()}
    with _environment(rehearsal), run_lock(run):
        check_keys()
        run_step(config, run, [name for name in stages if name in DATA], pythons)
        write_weights(rehearsal, config)
        yield from (step_time(rehearsal, name, images) for name in stages if name in DATA)
        for name in (name for name in stages if name not in DATA):
            run_step(config, run, [name], pythons)
            yield step_time(rehearsal, name, images)


def run_step(config: RunConfig, run: RunDir, stages: Sequence[str], pythons: Mapping[str, str]) -> None:
    """Execute stages as `qinglan run` does, or one alone as `qinglan run --only` does."""
    alone = stages[0] not in DATA
    assert config.questions is not None and config.knowledge_base is not None
    inputs = {"questions": config.questions, "knowledge_base": config.knowledge_base}
    config = prepare_run(REWRITER, config, run, stages, alone)
    gateway = partial(run_gateway, config, run, stages, read_sheet(config))
    run_stages(REWRITER, run, tuple(stages), inputs, alone, False, gateway, pythons)


def write_weights(rehearsal: Rehearsal, config: RunConfig) -> None:
    """The folder of base weights, as a cluster's volume has it: models by their public names."""
    chats = (rehearsal.run.shown("chats") / "train.jsonl").read_bytes().splitlines()
    base = weights_folder(rehearsal) / config.base.model
    if not base.is_dir():
        write_narrow_qwen3(base, [orjson.loads(line)["messages"] for line in chats])
    if config.ppo.critic_model:
        write_critic(weights_folder(rehearsal) / config.ppo.critic_model, base)


def weights_folder(rehearsal: Rehearsal) -> Path:
    return rehearsal.root / "weights"


def step_time(rehearsal: Rehearsal, stage: str, images: Mapping[str, str]) -> StepTime:
    record = rehearsal.run.step_record(stage) or {}
    started, ended = (datetime.fromisoformat(record[name]) for name in ("started", "ended"))
    seconds = round((ended - started).total_seconds(), 1)
    return StepTime(rehearsal.profile, stage, images.get(stage, "cpu"), seconds)


@contextmanager
def _environment(rehearsal: Rehearsal) -> Iterator[None]:
    """Keys and weights of this rehearsal alone; the base is handed on by reference, as on a cluster."""
    values = {
        WEIGHTS_VARIABLE: str(weights_folder(rehearsal).resolve()),
        BY_REFERENCE_VARIABLE: "1",
        "QINGLAN_KEYS": str((rehearsal.root / "keys").resolve()),
    }
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
