"""The A100 profiles' own commands, read by the real ms-swift over Qwen3-32B's shape, without its 65 GB of weights."""

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from components.training.sft.config import SftConfig
from components.training.sft.model_family import match_template, read_model_type
from components.training.sft.stage import sft
from pipelines.execute.environments.environments import make_environment
from qinglan.errors import ConfigError, TrainingError
from qinglan.files.scratch import SCRATCH_VARIABLE
from qinglan.rewriter.model import load_tokenizer, render_prompt
from tests.components.training.sft.test_sft import Recording
from tests.components.training.swift_subprocess import read_command
from tests.components.training.verl_subprocess import ask
from tests.models.qwen3 import PARAMETERS, qwen3_32b
from tests.models.tiny_rewriter import tiny_model
from tests.models.training_rows import chat, chats
from tests.processes.forked_runs import SWIFT

ONE_PROCESS = {
    "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "0", "DS_ACCELERATOR": "cpu",
}  # fmt: skip
"""Variables that torchrun sets for one process, and those of the stage for DeepSpeed without a GPU."""

PROFILES = Path(__file__).parents[4] / "pipelines" / "configs" / "training"


def stage_command(base: Path, folder: Path, config: SftConfig) -> list[str]:
    """The arguments that the stage gives ms-swift."""
    runner = Recording()
    with pytest.raises(TrainingError):
        sft(base, chats(folder / "chats"), folder / "model", folder / "log", config, runner)
    return runner.argv[runner.argv.index("swift.cli.main") + 2 :]


Read = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return qwen3_32b(tmp_path_factory.mktemp("qwen3") / "base_model")


@pytest.fixture(scope="module")
def read_by_swift(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Read:
    """By profile: what ms-swift makes of its command, with the packages of the sft image, DeepSpeed among them."""
    folder, commands = tmp_path_factory.mktemp("read"), {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SCRATCH_VARIABLE, str(folder / "scratch"))
        for profile in TRAINED:
            settings = yaml.safe_load((PROFILES / f"{profile}.yaml").read_text(encoding="utf-8")).get("sft", {})
            words = stage_command(base, folder, SftConfig.parse(settings, "sft"))
            commands[profile] = [*words, "--use_cpu", "true"]  # a machine without a GPU: nothing else is changed
    row, python = {"messages": chat(1)["messages"]}, str(make_environment("sft", cpu=True))
    environment = {**os.environ, **ONE_PROCESS}
    return {
        profile: ask(read_command, command, row, environment=environment, libraries=SWIFT, python=python)
        for profile, command in commands.items()
    }


TRAINED = dict.fromkeys(("a100x4", "a100x8", "a100-multinode"), 134_217_728) | {"a100x8-full": PARAMETERS}
"""By profile: how many weights it trains."""


@pytest.mark.slow
@pytest.mark.parametrize("profile", TRAINED)
@pytest.mark.nightly
def test_ms_swift_takes_each_a100_profiles_command_for_qwen3_32b(
    profile: str, base: Path, read_by_swift: Read
) -> None:
    """Arguments, model type, chat template, attention, and the weights that would be trained."""
    result, messages = read_by_swift[profile], chat(1)["messages"]

    tokenizer = load_tokenizer(base)
    served = tokenizer(render_prompt(tokenizer, messages[:2]), add_special_tokens=False).input_ids
    assert (result["attention"], result["packing"]) == ("sdpa", False)
    assert (result["parameters"], result["trained"]) == (PARAMETERS, TRAINED[profile])
    assert result["zero_stage"] == (3 if profile == "a100x8-full" else None)
    assert result["ids"][: len(served)] == served, "training sees the prompt that serving shows"
    learned = [label for label in result["labels"] if label != -100]
    assert messages[2]["content"] in tokenizer.decode(learned)


def test_the_template_is_the_one_that_renders_the_bases_own_prompt(tmp_path: Path) -> None:
    messages = chat(1)["messages"][:2]
    plain, thinking = tiny_model(tmp_path / "plain", stage="base"), qwen3_32b(tmp_path / "thinking")

    result = [
        match_template(base, render_prompt(load_tokenizer(base), messages), messages) for base in (plain, thinking)
    ]

    assert result == ["chatml", "qwen3"]
    assert read_model_type(plain) == read_model_type(thinking) == "qwen3"


def test_a_base_of_another_family_is_named_before_anything_is_trained(tmp_path: Path) -> None:
    messages = chat(1)["messages"][:2]

    with pytest.raises(ConfigError, match=r"renders '\[INST\] .*sft.template"):
        match_template(tmp_path, "[INST] 一天吃几次 [/INST]", messages)
    with pytest.raises(ConfigError, match=r"config.json: no model_type .*sft.model_type"):
        read_model_type(tmp_path)
