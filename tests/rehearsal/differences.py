"""The list of all that a rehearsal changes: settings of the profile, and what follows in the commands."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from components.training.ppo.launch import verl_command
from components.training.ppo.overrides import TrainingPaths
from components.training.sft.command import Paths, train_command
from pipelines.lines.line import LineConfig
from pipelines.lines.rewriter import RunConfig
from qinglan.jobs import Command
from tests.models.qwen3 import CONFIG
from tests.rehearsal.narrow_qwen3 import NARROW
from tests.rehearsal.release import commands_here, runtime_commands

SFT_PATHS = Paths(Path("/base_model"), Path("/train.jsonl"), Path("/dev.jsonl"), Path("/checkpoints"))
PPO_PATHS = TrainingPaths(*map(Path, ("/sft_model", "/train.parquet", "/dev.parquet", "/checkpoints", "/f.py", "/s")))

ROWS = 560
"""Training rows of a usual sheet; the number of steps between validations follows from it."""


class Difference(NamedTuple):
    name: str
    profile: Any
    """On A100s."""

    here: Any

    def __str__(self) -> str:
        profile, here = ("-" if value is None else value for value in (self.profile, self.here))
        return f"{self.name}: {profile} -> {here}"


def setting_differences(profile: LineConfig, here: LineConfig, stages: Sequence[str]) -> list[Difference]:
    """The settings of these stages in which two configurations differ, by their dotted names."""
    first, second = (dict(_leaves(config.stages())) for config in (profile, here))
    names = [name for name in {**first, **second} if name.partition(".")[0] in stages]
    return [Difference(n, first.get(n), second.get(n)) for n in names if first.get(n) != second.get(n)]


def command_differences(profile: RunConfig, here: RunConfig, stage: str) -> list[Difference]:
    """The options and environment variables in which a training's two commands differ."""
    return _differences(*(_words(_command(config, stage)) for config in (profile, here)))


def serving_differences(config: RunConfig) -> list[Difference]:
    """The options in which the commands of the runtime's two containers differ."""
    assert config.deploy is not None
    profile = runtime_commands(config.deploy.runtime, config.deploy.service)
    here = commands_here(profile, Path("/release"), Path("/weights"))
    pairs = zip(profile, here, strict=True)
    return [entry for pair in pairs for entry in _differences(*(_words(Command(tuple(c), {})) for c in pair))]


def other_differences(config: RunConfig, conversations: int) -> list[str]:
    """Differences that no setting and no command shows."""
    nodes = config.ppo.hardware.nodes
    pods = [f"pods of a job: {nodes} processes here, with the environment that training-operator gives such pods"]
    offload = ["offload: nothing moves, since a CPU has one memory; it is an error to compute with what is offloaded"]
    sizes = ", ".join(f"{name} {value}" for name, value in NARROW.items() if name in CONFIG)
    return [
        f"{config.base.model}: random weights, and the files of Qwen3-32B with {sizes}",
        f"questions: a sample of {conversations} conversations",
        "register: a release that the gate holds says so, and a signed override lets it be deployed",
        "deploy: the ModelRollout goes to a file, and no controller carries it out",
        *(pods if nodes > 1 else []),
        *(offload if config.ppo.hardware.offload else []),
    ]


def _differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[Difference]:
    return [Difference(n, first.get(n), second.get(n)) for n in {**first, **second} if first.get(n) != second.get(n)]


def _command(config: RunConfig, stage: str) -> Command:
    if stage == "sft":
        return train_command(config.sft, SFT_PATHS, ROWS)
    return verl_command(config.ppo, PPO_PATHS, Path("/verl.jsonl"), Path("/log"), "token")


def _words(command: Command) -> dict[str, str]:
    """The command as names and values: `--name value`, `name=value`, and what is neither under `command`."""
    words = ["python" if word == sys.executable else word for word in command.argv]
    named = {f"environment {name}": value for name, value in command.environment.items()}
    rest = []
    while words:
        word = words.pop(0)
        if word.startswith("--") and words and not words[0].startswith("--") and word != "--":
            named[word] = words.pop(0)
        elif "=" in word:
            name, _, value = word.partition("=")
            named[name.lstrip("+")] = value
        else:
            rest.append(word)
    return {"command": " ".join(rest), **named}


def _leaves(values: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value
