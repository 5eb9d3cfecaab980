"""Translate our settings to verl's in a pure function, so that a test can compose and check verl's configuration.

verl's settings: https://verl.readthedocs.io/en/latest/examples/config.html
`+` adds a key that verl's files do not have: https://hydra.cc/docs/advanced/override_grammar/basic/
"""

import re
from pathlib import Path
from typing import NamedTuple

from components.training.ppo.config import PpoConfig
from components.training.ppo.device import ACTOR, ROLLOUT, Value, load_device
from qinglan.live.trackers import training_name


class TrainingPaths(NamedTuple):
    """Files and folders of verl. The paths are absolute, since its processes run in other folders."""

    model: Path
    train: Path
    dev: Path
    checkpoints: Path
    reward_function: Path
    reward_settings: Path


BEFORE_QUOTE = re.compile(r"(\\+)(?='|\Z)")
"""Backslashes that would escape the quote after them. Hydra reads all other backslashes literally."""


def overrides(config: PpoConfig, paths: TrainingPaths) -> list[str]:
    values = {**_algorithm(config), **_data(config, paths), **_actor(config, paths), **_rollout(config)}
    values |= {**_reward(config, paths), **_trainer(config, paths)}
    if config.kl:
        # With LoRA the reference is the actor without its adapter, and verl only validates this key.
        values["actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu"] = config.micro_batch
    if config.advantage == "gae":
        values |= _critic(config, paths)
    values |= load_device(config.hardware).overrides(config)
    return [f"{key}={_hydra_literal(value)}" for key, value in values.items()]


def _algorithm(config: PpoConfig) -> dict[str, Value]:
    return {
        "algorithm.adv_estimator": config.advantage,
        "algorithm.gamma": config.gamma,
        "algorithm.lam": config.gae_lambda,
        "algorithm.use_kl_in_reward": config.kl > 0,
        "algorithm.kl_ctrl.kl_coef": config.kl,
    }


def _data(config: PpoConfig, paths: TrainingPaths) -> dict[str, Value]:
    return {
        "data.train_files": str(paths.train),
        "data.val_files": str(paths.dev),
        "data.train_batch_size": config.prompts,
        "data.max_prompt_length": config.max_prompt_tokens,
        "data.max_response_length": config.max_new_tokens,
        "data.seed": config.seed,
        "data.dataloader_num_workers": 0,
        # Serving renders without thinking; a template without this variable ignores it.
        "+data.apply_chat_template_kwargs.enable_thinking": False,
    }


def _actor(config: PpoConfig, paths: TrainingPaths) -> dict[str, Value]:
    saved = ["model", "optimizer", "extra"]
    adapters = {f"+{ACTOR}.checkpoint.save_lora_only": True} if config.lora.rank else {}
    return {
        **adapters,
        "actor_rollout_ref.model.path": str(paths.model),
        "actor_rollout_ref.model.lora_rank": config.lora.rank,
        "actor_rollout_ref.model.lora_alpha": config.lora.alpha,
        "actor_rollout_ref.model.target_modules": config.lora.targets,
        # The rollout samples from the merged weights, which will be served.
        "actor_rollout_ref.model.lora.merge": config.lora.rank > 0,
        f"{ACTOR}.optim.lr": config.actor_learning_rate,
        # verl 0.9.1 does not read `actor.grad_clip`.
        f"{ACTOR}.optim.clip_grad": config.gradient_clip,
        f"{ACTOR}.ppo_epochs": config.ppo_epochs,
        f"{ACTOR}.clip_ratio": config.clip,
        f"{ACTOR}.clip_ratio_low": config.clip,
        f"{ACTOR}.clip_ratio_high": config.clip,
        f"{ACTOR}.entropy_coeff": config.entropy,
        # The unit is prompts: verl multiplies the number by the rollouts per prompt.
        f"{ACTOR}.ppo_mini_batch_size": config.batch // config.rollouts,
        f"{ACTOR}.ppo_micro_batch_size_per_gpu": config.micro_batch,
        f"{ACTOR}.data_loader_seed": config.seed,
        f"{ACTOR}.fsdp_config.seed": config.seed,
        f"{ACTOR}.checkpoint.save_contents": saved,
        f"{ACTOR}.checkpoint.load_contents": saved,
    }


def _rollout(config: PpoConfig) -> dict[str, Value]:
    return {
        f"{ROLLOUT}.n": config.rollouts,
        f"{ROLLOUT}.temperature": config.temperature,
        f"{ROLLOUT}.top_p": config.top_p,
        f"{ROLLOUT}.seed": config.seed,
        f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu": config.micro_batch,
    }


def _critic(config: PpoConfig, paths: TrainingPaths) -> dict[str, Value]:
    return {
        "critic.model.path": config.critic_model or str(paths.model),
        "critic.optim.lr": config.critic_learning_rate,
        # The rate changes between steps, not between updates. In the first step it is 0: AdamW only collects moments.
        "critic.optim.lr_warmup_steps_ratio": config.critic_warmup,
        "critic.optim.clip_grad": config.gradient_clip,
        "critic.ppo_micro_batch_size_per_gpu": config.micro_batch,
        # verl only validates the key above. The critic's engine reads these three, and without them computes a whole
        # mini-batch at once (verl/workers/engine_workers.py).
        "+critic.fsdp.use_dynamic_bsz": False,
        "+critic.fsdp.micro_batch_size_per_gpu": config.micro_batch,
        "+critic.fsdp.infer_micro_batch_size_per_gpu": config.micro_batch,
        "critic.data_loader_seed": config.seed,
        "critic.fsdp.seed": config.seed,
    }


def _reward(config: PpoConfig, paths: TrainingPaths) -> dict[str, Value]:
    function = "reward.custom_reward_function"
    return {
        "reward.num_workers": config.hardware.reward_workers,
        f"{function}.path": str(paths.reward_function),
        f"{function}.name": "compute_score",
        f"+{function}.reward_kwargs.settings": str(paths.reward_settings),
    }


def _trainer(config: PpoConfig, paths: TrainingPaths) -> dict[str, Value]:
    return {
        "trainer.device": config.hardware.device,
        "trainer.n_gpus_per_node": config.hardware.per_node,
        "trainer.nnodes": config.hardware.nodes,
        "trainer.logger": ["console", "file", *config.trackers],
        "trainer.total_epochs": 1_000_000 if config.steps else config.epochs,
        "trainer.total_training_steps": config.steps or None,
        "trainer.save_freq": config.every,
        "trainer.test_freq": config.every,
        "trainer.project_name": "qinglan",
        "trainer.experiment_name": training_name("ppo"),
        "trainer.default_local_dir": str(paths.checkpoints),
        "trainer.resume_mode": "auto",
        "hydra.run.dir": ".",
        "hydra.output_subdir": None,
        "trainer.max_actor_ckpt_to_keep": config.keep,
        "trainer.max_critic_ckpt_to_keep": config.keep,
        # This Ray cluster lives only as long as the training, so it needs no dashboard.
        "+ray_kwargs.ray_init.include_dashboard": False,
    }


def _hydra_literal(value: Value) -> str:
    """Return the value in hydra's grammar. Texts are quoted, so that a path is always read as text."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "[" + ",".join(value) + "]"
    if isinstance(value, str):
        return "'" + BEFORE_QUOTE.sub(r"\1\1", value).replace("'", "\\'") + "'"
    return repr(value)
