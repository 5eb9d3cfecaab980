"""The plan's numbers, in verl's own composed and validated configuration."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from components.training.ppo.config import PpoConfig
from components.training.ppo.launch import variables
from components.training.ppo.overrides import Places, _written, overrides
from qinglan.errors import ConfigError
from tests.ppo_world import laptop
from tests.tiny import tiny_model

COMPOSE = """
import json, sys
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.utils.config import validate_config

with initialize_config_module("verl.trainer.config", version_base=None):
    config = compose("ppo_trainer", json.loads(sys.argv[1]))
validate_config(config, need_reference_policy(config), need_critic(config))
print(json.dumps(OmegaConf.to_container(config, resolve=True)))
"""


def composed(config: PpoConfig, model: Path) -> Any:
    """What verl would run with; an error when verl refuses it."""
    places = Places(tiny_model(model), *(Path(f"/w/{name}") for name in Places._fields[1:]))
    given = [word for word in overrides(config, places) if not word.startswith("hydra.")]
    done = subprocess.run(
        [sys.executable, "-c", COMPOSE, json.dumps(given)], capture_output=True, text=True,
        env={**variables(config), "PATH": "", "HOME": "/nonexistent"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


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
    "actor_rollout_ref.actor.ppo_epochs": 4,
    "critic.ppo_epochs": 4,
    "actor_rollout_ref.actor.clip_ratio": 0.2,
    "actor_rollout_ref.actor.clip_ratio_low": 0.2,
    "actor_rollout_ref.actor.clip_ratio_high": 0.2,
    "actor_rollout_ref.actor.entropy_coeff": 0.01,
    "actor_rollout_ref.actor.optim.clip_grad": 0.5,
    "critic.optim.clip_grad": 0.5,
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
    "actor_rollout_ref.rollout.val_kwargs.do_sample": False,
    "trainer.n_gpus_per_node": 4,
    "actor_rollout_ref.actor.strategy": "fsdp2",
    "actor_rollout_ref.model.lora_rank": 64,
    "actor_rollout_ref.model.lora.merge": True,
    "trainer.resume_mode": "auto",
    "reward.custom_reward_function.path": "/w/reward_function",
    "reward.custom_reward_function.reward_kwargs.settings": "/w/reward_settings",
}


@pytest.mark.slow
def test_each_number_of_the_plan_arrives_in_verls_own_configuration(tmp_path: Path) -> None:
    config = composed(PpoConfig(), tmp_path)

    assert {path: at(config, path) for path in PLAN} == PLAN
    micro = at(config, "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu")
    assert 64 / (micro * 4) == 4, "gradient accumulation"


@pytest.mark.slow
def test_a_laptops_settings_pass_verls_validation(tmp_path: Path) -> None:
    config = composed(laptop(batch=8, rollouts=2, advantage="grpo"), tmp_path)

    assert at(config, "algorithm.adv_estimator") == "grpo"
    assert at(config, "data.train_batch_size") == 8, "prompts: two rollouts of each make the collection"
    assert at(config, "actor_rollout_ref.actor.ppo_mini_batch_size") == 4
    assert at(config, "actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype") == "fp32"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"advantage": "grpo"}, "rollouts"),
        ({"collection": 100}, "multiple of batch"),
        ({"batch": 32, "accumulation": 32}, "devices"),
        ({"hardware": {"tensor_parallel": 3}}, "tensor_parallel"),
        ({"clipp": 0.2}, "clipp"),
    ],
)
def test_settings_that_do_not_fit_together_are_named(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        PpoConfig.parse(changes, "ppo")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@given(st.text() | st.text("\\'0a "))
@example("\\0")
@example("\\'\\\\")
def test_any_text_comes_back_from_hydras_grammar_as_it_was(text: str) -> None:
    from hydra.core.override_parser.overrides_parser import OverridesParser

    if "${" in text or text.strip() != text or not text.isprintable():
        return  # no path of ours
    assert OverridesParser.create().parse_override(f"key={_written(text)}").value() == text
