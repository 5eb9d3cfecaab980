"""verl itself reads our settings: the plan's numbers in its configuration, its engines' parts, its losses."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from components.training.ppo import gpus
from components.training.ppo.config import PpoConfig
from components.training.ppo.launch import verl_environment
from components.training.ppo.overrides import TrainingPaths, overrides
from pipelines.lines.config import TRAINING
from qinglan.config import load_yaml
from tests.components.training import verl_subprocess
from tests.components.training.verl_subprocess import ask
from tests.models.ppo_world import laptop
from tests.models.tiny_rewriter import tiny_model

pytestmark = pytest.mark.slow


def ask_verl(question: Callable[[list[str]], Any], config: PpoConfig, model: Path) -> Any:
    """A question about what verl would run with."""
    paths = TrainingPaths(tiny_model(model), *(Path(f"/w/{name}") for name in TrainingPaths._fields[1:]))
    words = [word for word in overrides(config, paths) if not word.startswith("hydra.")]
    return ask(question, words, environment={**verl_environment(config), "PATH": "", "HOME": "/nonexistent"})


def at(config: Any, path: str) -> Any:
    for name in path.split("."):
        config = config[name]
    return config


PLAN = {
    "algorithm.adv_estimator": "gae",
    "algorithm.gamma": 0.99,
    "algorithm.lam": 0.95,
    "algorithm.use_kl_in_reward": True,
    "actor_rollout_ref.actor.optim.lr": 1e-5,
    "critic.optim.lr": 1e-4,
    "critic.optim.lr_warmup_steps_ratio": 0.1,
    "actor_rollout_ref.actor.ppo_epochs": 4,
    "critic.ppo_epochs": 4,
    "actor_rollout_ref.actor.clip_ratio": 0.2,
    "actor_rollout_ref.actor.clip_ratio_low": 0.2,
    "actor_rollout_ref.actor.clip_ratio_high": 0.2,
    "actor_rollout_ref.actor.entropy_coeff": 0.01,
    "actor_rollout_ref.actor.optim.clip_grad": 0.5,
    "critic.optim.clip_grad": 0.5,
    "actor_rollout_ref.actor.optim.override_optimizer_config": {"foreach": False},
    "critic.optim.override_optimizer_config": {"foreach": False},
    "data.train_batch_size": 256,
    "actor_rollout_ref.actor.ppo_mini_batch_size": 64,
    "critic.ppo_mini_batch_size": 64,
    "trainer.total_epochs": 10,
    "trainer.total_training_steps": None,
    "actor_rollout_ref.rollout.temperature": 0.7,
    "actor_rollout_ref.rollout.top_p": 0.9,
    "actor_rollout_ref.rollout.response_length": 150,
    "actor_rollout_ref.rollout.n": 1,
    "actor_rollout_ref.rollout.tensor_model_parallel_size": 4,
    "actor_rollout_ref.rollout.name": "vllm",
    "actor_rollout_ref.rollout.dtype": "bfloat16",
    "actor_rollout_ref.rollout.load_format": "dummy",
    "actor_rollout_ref.rollout.max_model_len": 512 + 150,
    "actor_rollout_ref.actor.fsdp_config.model_dtype": "bfloat16",
    "critic.fsdp.model_dtype": "float32",
    "actor_rollout_ref.model.use_remove_padding": True,
    "actor_rollout_ref.model.enable_gradient_checkpointing": True,
    "actor_rollout_ref.model.override_config.attn_implementation": "sdpa",
    "critic.model.override_config.attn_implementation": "sdpa",
    "actor_rollout_ref.rollout.val_kwargs.do_sample": False,
    "trainer.n_gpus_per_node": 4,
    "actor_rollout_ref.actor.strategy": "fsdp2",
    "actor_rollout_ref.model.lora_rank": 64,
    "actor_rollout_ref.model.lora.merge": True,
    "trainer.resume_mode": "auto",
    "reward.custom_reward_function.path": "/w/reward_function",
    "reward.custom_reward_function.reward_kwargs.settings": "/w/reward_settings",
}


ON_GPUS = sorted(path.stem for path in TRAINING.glob("*.yaml") if "cluster" in load_yaml(path))


def test_each_number_of_the_plan_arrives_in_verls_own_configuration(tmp_path: Path) -> None:
    config = ask_verl(verl_subprocess.validated, PpoConfig(), tmp_path)

    assert {path: at(config, path) for path in PLAN} == PLAN
    micro = at(config, "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu")
    assert 64 / (micro * 4) == 4, "gradient accumulation"


def profile(name: str) -> PpoConfig:
    """A training file's settings; without its critic, whose weights are not here."""
    settings = load_yaml(TRAINING / f"{name}.yaml")["ppo"]
    return PpoConfig.parse({key: value for key, value in settings.items() if key != "critic_model"}, name)


@pytest.mark.parametrize("config", [*map(profile, ON_GPUS), laptop(accumulation=2)], ids=[*ON_GPUS, "laptop"])
def test_every_engine_of_verl_computes_in_the_parts_that_are_asked_for(config: PpoConfig, tmp_path: Path) -> None:
    """Parts of an update, and of a whole collection's values and probabilities, on each device."""
    result = ask_verl(verl_subprocess.micro_batches, config, tmp_path)

    assert result["update"] == dict.fromkeys(("actor", "critic"), config.accumulation)
    collected = config.collection // config.batch * config.accumulation
    assert result["collection"] == dict.fromkeys(("actor", "critic", "ref"), collected)


def test_weights_that_are_trained_are_float32_and_a_reference_of_its_own_is_not(tmp_path: Path) -> None:
    config = ask_verl(verl_subprocess.validated, PpoConfig.parse({"lora": {"rank": 0}}, "ppo"), tmp_path)

    assert at(config, "actor_rollout_ref.actor.fsdp_config.model_dtype") == "float32"
    assert at(config, "actor_rollout_ref.ref.fsdp_config.model_dtype") == "bfloat16"


def test_a_bfloat16_base_keeps_its_adapter_in_float32() -> None:
    """The first pair is stock verl's: when it is float32 too, verl has mended it and the plugin can go."""
    updates = ask(verl_subprocess.adapter_updates, environment=os.environ)

    (stock, stock_moved), (patched, moved) = updates["stock"], updates["ours"]
    assert (stock, patched) == ("torch.bfloat16", "torch.float32")
    assert stock_moved < 0.5, "most of a step at the plan's learning rate is lost in rounding"
    assert moved == 1.0


def test_a_critic_is_loaded_without_the_flash_attention_package(tmp_path: Path) -> None:
    stock, attention = ask(verl_subprocess.value_head, str(tiny_model(tmp_path)), environment=os.environ)

    assert "flash" in stock.lower()
    assert attention == "sdpa"


def test_rows_joined_to_a_line_do_not_see_each_other_with_the_attention_of_gpus(tmp_path: Path) -> None:
    model = str(tiny_model(tmp_path))

    assert ask(verl_subprocess.rows_in_a_line, model, gpus.ATTENTION, environment=os.environ) < 1e-4


def test_an_actor_without_vllm_and_vllm_without_an_actor_are_errors_not_hangs(tmp_path: Path) -> None:
    actor, vllm = ask(
        verl_subprocess.unanswered_transfers, str(tmp_path), environment={**os.environ, **verl_environment(laptop())}
    )

    assert actor.startswith("TrainingError: vLLM did not take the new weights within 0.3 seconds")
    assert vllm.startswith("TrainingError: the actor did not send vLLM the new weights within 0.3 seconds")


def test_a_laptops_settings_pass_verls_validation(tmp_path: Path) -> None:
    config = ask_verl(verl_subprocess.validated, laptop(batch=8, rollouts=2, advantage="grpo"), tmp_path)

    assert at(config, "algorithm.adv_estimator") == "grpo"
    assert at(config, "data.train_batch_size") == 8, "prompts: two rollouts of each make the collection"
    assert at(config, "actor_rollout_ref.actor.ppo_mini_batch_size") == 4
    assert at(config, "actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype") == "fp32"


def test_the_critic_is_not_told_to_turn_an_adapter_off() -> None:
    """The first pair is stock verl's: when it becomes (True, False), verl has mended it and the guard can go."""
    assert ask(verl_subprocess.adapter_off, environment=os.environ) == ((True, True), (True, False))


def test_verls_loss_gives_the_plans_worked_example() -> None:
    """Part 3.6.4: reward .65, value .5, log probability -2.3 and then -2.1, clipped at 1.2."""
    result = ask(verl_subprocess.losses, environment=os.environ)

    loss, clipped = result["win"]
    assert loss == pytest.approx(-1.2 * 0.15, abs=1e-6)
    assert clipped == 1.0
    assert result["lose"][0] == pytest.approx(2.718281828**0.2 * 0.8, abs=1e-5), "a loss is not clipped upwards"
    assert result["same"] == (pytest.approx(-0.15, abs=1e-6), 0.0)
    assert result["value"] == pytest.approx(0.5 * (0.65 - 0.5) ** 2, abs=1e-6), "the plan's half of the square"
    assert result["returns"] == pytest.approx([0.65, -0.3], abs=1e-6)
    assert sum(result["advantages"]) == pytest.approx(0, abs=1e-5), "normalised over the batch"
    assert result["advantages"][0] > 0 > result["advantages"][1]
