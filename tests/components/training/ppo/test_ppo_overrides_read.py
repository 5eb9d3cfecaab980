"""Each setting that we send to verl is read there. verl also accepts, and even validates, keys that nothing reads;
such a key looks like a setting and is none.
"""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from components.training.ppo.config import PpoConfig
from components.training.ppo.overrides import TrainingPaths, overrides
from tests.models.ppo_world import laptop

RUN_BY_US = (
    "trainer/", "experimental/agent_loop/", "experimental/reward_loop/", "utils/checkpoint/", "utils/dataset/",
    "workers/config/", "workers/utils/", "workers/engine_workers.py", "workers/engine/fsdp/",
    "workers/rollout/vllm_rollout/", "checkpoint_engine/",
)  # fmt: skip
"""Files of verl that a training of ours runs: FSDP and vLLM, no Megatron and no SGLang."""

NOT_RUN = ("trainer/ppo/ray_trainer.py", "trainer/sft_trainer.py")

NAMES_IN_VERL = {
    "fsdp_config": "engine_config", "fsdp": "engine_config", "optim": "optimizer_config|config",
    "mixed_precision": "mixed_precision_config", "custom_reward_function": "reward_fn_config",
}  # fmt: skip
"""Names that verl's code has for the section of a key, where it is neither the section's name nor config."""

READ_BY_OTHER_TEXT = {
    "agent.agent_loop_manager_class": '.get("agent_loop_manager_class")',
    "data.apply_chat_template_kwargs": 'self.data_config.get("apply_chat_template_kwargs"',
    "optim.lr_warmup_steps_ratio": "int(num_warmup_steps_ratio * total_steps)",
    "optim.override_optimizer_config": "optimizer_args.update(config.override_optimizer_config)",
    "ray_kwargs.ray_init": 'config.ray_kwargs.get("ray_init"',
    "ref.log_prob_micro_batch_size_per_gpu": '"log_prob_micro_batch_size_per_gpu", None',
    "reward.custom_reward_function.reward_kwargs": '.get("reward_kwargs"',
    "rollout.engine_kwargs": "**engine_kwargs",
    "rollout_correction.bypass_mode": '.get("bypass_mode", False)',
}
"""Mostly sections that verl hands on whole: to PyTorch, to Ray, to vLLM and to our reward."""

READ_ELSEWHERE = {
    "transfer_queue.backend.SimpleStorage.num_data_storage_units": "the package TransferQueue",
    "critic.ppo_micro_batch_size_per_gpu": "verl only validates it; its engine reads the three of critic.fsdp",
    "actor_rollout_ref.actor.fsdp_config.seed": "components/training/ppo/plugin/first_weights.py",
    "critic.fsdp.seed": "components/training/ppo/plugin/first_weights.py",
    "hydra.run.dir": "hydra itself",
    "hydra.output_subdir": "hydra itself",
}


def sent() -> set[str]:
    """Every key of a training on GPUs and on CPUs, of an adapter and of all weights."""
    paths = TrainingPaths(*(Path(f"/w/{name}") for name in TrainingPaths._fields))
    vllm = {"device": "cpu", "plugin": "standins.verl_cpu.vllm_device", "dtype": "float32"}
    configs = [
        *(
            PpoConfig.parse({"lora": {"rank": rank}, "hardware": hardware}, "ppo")
            for rank in (0, 8)
            for hardware in ({}, vllm)
        ),
        laptop(),
    ]
    return {word.partition("=")[0].lstrip("+") for config in configs for word in overrides(config, paths)}


@pytest.fixture(scope="module")
def verl() -> str:
    """The text of verl's files that a training of ours runs, and of one where the rollout reads a data setting."""
    [folder] = map(Path, find_spec("verl").submodule_search_locations)  # type: ignore[union-attr,arg-type]
    paths = [path for path in folder.rglob("*.py") if str(path.relative_to(folder)).startswith(RUN_BY_US)]
    run = [path for path in paths if not str(path.relative_to(folder)).startswith(NOT_RUN)]
    return "\n".join(path.read_text() for path in (*run, folder / "trainer/config/rollout/rollout.yaml"))


@pytest.mark.parametrize("key", sorted(sent() - READ_ELSEWHERE.keys()))
def test_verl_reads(key: str, verl: str) -> None:
    other_texts = [text for part, text in READ_BY_OTHER_TEXT.items() if f".{part}." in f".{key}."]
    section, name = key.split(".")[-2:]
    holder = NAMES_IN_VERL.get(section, rf"{section}|{section}_config|config")

    assert (
        other_texts[0] in verl
        if other_texts
        else re.search(rf"""\b({holder})(\.|\.get\(\s*|\[)["']?{name}\b""", verl)
    )
