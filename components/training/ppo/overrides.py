"""Our settings as verl's: one pure function, so that a test can compose verl's configuration and look."""

import re
from pathlib import Path
from typing import NamedTuple

from components.training.ppo.config import PpoConfig
from components.training.ppo.device import ACTOR, ROLLOUT, Value, load_device


class TrainingPaths(NamedTuple):
    """What is read and written; absolute, since verl's processes run elsewhere."""

    model: Path
    train: Path
    dev: Path
    checkpoints: Path
    reward_function: Path
    reward_settings: Path


BEFORE_QUOTE = re.compile(r"(\\+)(?='|\Z)")
"""Backslashes that would take the quote behind them for text; hydra reads all others as they stand."""


def overrides(config: PpoConfig, places: TrainingPaths) -> list[str]:
    """The arguments of verl.trainer.main_ppo."""
    values = {**_algorithm(config), **_data(config, places), **_actor(config, places), **_rollout(config)}
    values |= {**_reward(config, places), **_trainer(config, places)}
    if config.advantage == "gae":
        values |= _critic(config, places)
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


def _data(config: PpoConfig, places: TrainingPaths) -> dict[str, Value]:
    return {
        "data.train_files": str(places.train),
        "data.val_files": str(places.dev),
        "data.train_batch_size": config.prompts,
        "data.max_prompt_length": config.max_prompt_tokens,
        "data.max_response_length": config.max_new_tokens,
        "data.seed": config.seed,
        "data.dataloader_num_workers": 0,
        # Serving renders with thinking off; a template without the word does not mind.
        "+data.apply_chat_template_kwargs.enable_thinking": False,
    }


def _actor(config: PpoConfig, places: TrainingPaths) -> dict[str, Value]:
    saved = ["model", "optimizer", "extra"]
    adapters = {f"+{ACTOR}.checkpoint.save_lora_only": True} if config.lora.rank else {}
    return {
        **adapters,
        "actor_rollout_ref.model.path": str(places.model),
        "actor_rollout_ref.model.lora_rank": config.lora.rank,
        "actor_rollout_ref.model.lora_alpha": config.lora.alpha,
        "actor_rollout_ref.model.target_modules": config.lora.targets,
        # The rollout sees the merged weights: what is sampled is what will be served.
        "actor_rollout_ref.model.lora.merge": config.lora.rank > 0,
        f"{ACTOR}.optim.lr": config.actor_learning_rate,
        # verl's own grad_clip is read by nothing.
        f"{ACTOR}.optim.clip_grad": config.gradient_clip,
        f"{ACTOR}.ppo_epochs": config.ppo_epochs,
        f"{ACTOR}.clip_ratio": config.clip,
        f"{ACTOR}.clip_ratio_low": config.clip,
        f"{ACTOR}.clip_ratio_high": config.clip,
        f"{ACTOR}.entropy_coeff": config.entropy,
        # In prompts: verl multiplies by the rollouts of each.
        f"{ACTOR}.ppo_mini_batch_size": config.batch // config.rollouts,
        f"{ACTOR}.ppo_micro_batch_size_per_gpu": config.micro_batch,
        f"{ACTOR}.data_loader_seed": config.seed,
        f"{ACTOR}.fsdp_config.seed": config.seed,
        f"{ACTOR}.checkpoint.save_contents": saved,
        f"{ACTOR}.checkpoint.load_contents": saved,
        "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu": config.micro_batch,
    }


def _rollout(config: PpoConfig) -> dict[str, Value]:
    return {
        f"{ROLLOUT}.n": config.rollouts,
        f"{ROLLOUT}.temperature": config.temperature,
        f"{ROLLOUT}.top_p": config.top_p,
        f"{ROLLOUT}.seed": config.seed,
        f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu": config.micro_batch,
    }


def _critic(config: PpoConfig, places: TrainingPaths) -> dict[str, Value]:
    return {
        "critic.model.path": config.critic_model or str(places.model),
        "critic.optim.lr": config.critic_learning_rate,
        "critic.optim.clip_grad": config.gradient_clip,
        "critic.ppo_micro_batch_size_per_gpu": config.micro_batch,
        # verl validates the key above and hands it to nobody: the critic's engine reads these, and without them
        # computes a whole mini-batch at once.
        "+critic.fsdp.use_dynamic_bsz": False,
        "+critic.fsdp.micro_batch_size_per_gpu": config.micro_batch,
        "+critic.fsdp.infer_micro_batch_size_per_gpu": config.micro_batch,
        "critic.data_loader_seed": config.seed,
        "critic.fsdp.seed": config.seed,
    }


def _reward(config: PpoConfig, places: TrainingPaths) -> dict[str, Value]:
    function = "reward.custom_reward_function"
    return {
        "reward.num_workers": config.hardware.reward_workers,
        f"{function}.path": str(places.reward_function),
        f"{function}.name": "compute_score",
        f"+{function}.reward_kwargs.settings": str(places.reward_settings),
    }


def _trainer(config: PpoConfig, places: TrainingPaths) -> dict[str, Value]:
    return {
        "trainer.device": config.hardware.device,
        "trainer.n_gpus_per_node": config.hardware.per_node,
        "trainer.nnodes": config.hardware.nodes,
        "trainer.logger": ["console", "file", *config.loggers],
        "trainer.total_epochs": 1_000_000 if config.steps else config.epochs,
        "trainer.total_training_steps": config.steps or None,
        "trainer.save_freq": config.every,
        "trainer.test_freq": config.every,
        "trainer.project_name": "qinglan",
        "trainer.experiment_name": "ppo",
        "trainer.default_local_dir": str(places.checkpoints),
        "trainer.resume_mode": "auto",
        "hydra.run.dir": ".",
        "hydra.output_subdir": None,
        "trainer.max_actor_ckpt_to_keep": config.keep,
        "trainer.max_critic_ckpt_to_keep": config.keep,
        # Alone among users of a machine with a cluster of its own, a dashboard is a process for nobody.
        "+ray_kwargs.ray_init.include_dashboard": False,
    }


def _hydra_literal(value: Value) -> str:
    """In hydra's grammar; texts are quoted, so that no path is read as anything else."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "[" + ",".join(value) + "]"
    if isinstance(value, str):
        return "'" + BEFORE_QUOTE.sub(r"\1\1", value).replace("'", "\\'") + "'"
    return repr(value)
