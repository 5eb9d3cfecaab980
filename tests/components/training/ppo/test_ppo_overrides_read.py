"""Each setting that we send to verl is read there: the line that reads it, by file. verl also accepts, and even
validates, keys that nothing reads; such a key looks like a setting and is none.
"""

from importlib.util import find_spec
from pathlib import Path

import pytest

from components.training.ppo.config import PpoConfig
from components.training.ppo.overrides import TrainingPaths, overrides
from tests.models.ppo_world import laptop

ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
ENGINE, SERVER = "workers/engine/fsdp/transformer_impl.py", "workers/rollout/vllm_rollout/vllm_async_server.py"
TRAINER, WORKERS = "trainer/ppo/v1/trainer_base.py", "workers/engine_workers.py"
MODEL, CHECKPOINTS = "workers/config/model.py", "utils/checkpoint/checkpoint_manager.py"
LOSSES, AGENT = "trainer/ppo/core_algos.py", "experimental/agent_loop/agent_loop.py"

READERS = {
    f"{ACTOR}.strategy": (ENGINE, 'self.engine_config.strategy == "fsdp2"'),
    f"{ACTOR}.fsdp_config.model_dtype": (ENGINE, "self.engine_config.model_dtype"),
    f"{ACTOR}.fsdp_config.param_offload": (ENGINE, "self.engine_config.param_offload"),
    f"{ACTOR}.fsdp_config.optimizer_offload": (ENGINE, "self.engine_config.optimizer_offload"),
    f"{ACTOR}.optim.lr": ("workers/config/optimizer.py", '"lr": config.lr'),
    f"{ACTOR}.optim.clip_grad": (ENGINE, "max_norm=self.optimizer_config.clip_grad"),
    f"{ACTOR}.optim.override_optimizer_config.foreach": (
        "workers/config/optimizer.py",
        "optimizer_args.update(config.override_optimizer_config)",
    ),
    f"{ACTOR}.ppo_epochs": (TRAINER, "self.config.actor_rollout_ref.actor.ppo_epochs"),
    f"{ACTOR}.clip_ratio": (LOSSES, "clip_ratio = config.clip_ratio "),
    f"{ACTOR}.clip_ratio_low": (LOSSES, "config.clip_ratio_low if"),
    f"{ACTOR}.clip_ratio_high": (LOSSES, "config.clip_ratio_high if"),
    f"{ACTOR}.entropy_coeff": ("workers/utils/losses.py", "config.entropy_coeff"),
    f"{ACTOR}.ppo_mini_batch_size": (TRAINER, "self.config.actor_rollout_ref.actor.ppo_mini_batch_size"),
    f"{ACTOR}.ppo_micro_batch_size_per_gpu": (WORKERS, "self.config.actor.ppo_micro_batch_size_per_gpu"),
    f"{ACTOR}.data_loader_seed": (TRAINER, "self.config.actor_rollout_ref.actor.data_loader_seed"),
    f"{ACTOR}.checkpoint.save_contents": (CHECKPOINTS, "save_contents"),
    f"{ACTOR}.checkpoint.load_contents": (CHECKPOINTS, "load_contents"),
    f"{ACTOR}.checkpoint.save_lora_only": (CHECKPOINTS, "save_lora_only"),
    "actor_rollout_ref.model.path": (MODEL, "copy_to_local(self.path"),
    "actor_rollout_ref.model.lora_rank": (ENGINE, "self.model_config.lora_rank > 0"),
    "actor_rollout_ref.model.lora_alpha": (ENGINE, '"lora_alpha": self.model_config.lora_alpha'),
    "actor_rollout_ref.model.target_modules": (ENGINE, "self.model_config.target_modules"),
    "actor_rollout_ref.model.lora.merge": (ENGINE, 'self.model_config.lora.get("merge", False)'),
    "actor_rollout_ref.model.override_config.attn_implementation": (
        MODEL,
        'override_config.get("attn_implementation"',
    ),
    "actor_rollout_ref.ref.fsdp_config.model_dtype": (ENGINE, "self.engine_config.model_dtype"),
    "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu": (WORKERS, '"log_prob_micro_batch_size_per_gpu", None'),
    f"{ROLLOUT}.name": (WORKERS, "get_rollout_class(rollout_config.name"),
    f"{ROLLOUT}.dtype": (SERVER, '"dtype": self.config.dtype'),
    f"{ROLLOUT}.seed": (SERVER, "self.replica_rank + self.config.seed"),
    f"{ROLLOUT}.enforce_eager": (SERVER, '"enforce_eager": self.config.enforce_eager'),
    f"{ROLLOUT}.max_model_len": (SERVER, '"max_model_len": self.config.max_model_len'),
    f"{ROLLOUT}.gpu_memory_utilization": (SERVER, '"gpu_memory_utilization": self.config.gpu_memory_utilization'),
    f"{ROLLOUT}.tensor_model_parallel_size": (
        SERVER,
        '"tensor_parallel_size": self.config.',
    ),
    f"{ROLLOUT}.n": (TRAINER, "self.config.actor_rollout_ref.rollout.n"),
    f"{ROLLOUT}.temperature": (AGENT, "temperature=config.temperature"),
    f"{ROLLOUT}.top_p": (AGENT, "top_p=config.top_p"),
    f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu": (
        WORKERS,
        "self.config.rollout.log_prob_micro_batch_size_per_gpu",
    ),
    "algorithm.adv_estimator": (TRAINER, "self.config.algorithm.adv_estimator"),
    "algorithm.gamma": (TRAINER, "self.config.algorithm.gamma"),
    "algorithm.lam": (TRAINER, "self.config.algorithm.lam"),
    "algorithm.use_kl_in_reward": (TRAINER, "self.config.algorithm.use_kl_in_reward"),
    "algorithm.kl_ctrl.kl_coef": (LOSSES, "kl_ctrl.kl_coef"),
    "critic.strategy": (ENGINE, 'self.engine_config.strategy == "fsdp2"'),
    "critic.fsdp.model_dtype": (ENGINE, "self.engine_config.model_dtype"),
    "critic.fsdp.param_offload": (ENGINE, "self.engine_config.param_offload"),
    "critic.fsdp.optimizer_offload": (ENGINE, "self.engine_config.optimizer_offload"),
    "critic.fsdp.use_dynamic_bsz": (WORKERS, "self.engine_config.use_dynamic_bsz"),
    "critic.fsdp.micro_batch_size_per_gpu": (WORKERS, "self.engine_config.micro_batch_size_per_gpu"),
    "critic.fsdp.infer_micro_batch_size_per_gpu": (WORKERS, "self.engine_config.infer_micro_batch_size_per_gpu"),
    "critic.data_loader_seed": (TRAINER, "self.config.critic.data_loader_seed"),
    "critic.model.path": (MODEL, "copy_to_local(self.path"),
    "critic.model.override_config.attn_implementation": (MODEL, '.get("attn_implementation"'),
    "critic.optim.lr": ("workers/config/optimizer.py", '"lr": config.lr'),
    "critic.optim.lr_warmup_steps_ratio": (ENGINE, "int(num_warmup_steps_ratio * total_steps)"),
    "critic.optim.clip_grad": (ENGINE, "max_norm=self.optimizer_config.clip_grad"),
    "critic.optim.override_optimizer_config.foreach": (
        "workers/config/optimizer.py",
        "optimizer_args.update(config.override_optimizer_config)",
    ),
    "data.train_files": (TRAINER, "self.config.data.train_files"),
    "data.val_files": (TRAINER, "self.config.data.val_files"),
    "data.train_batch_size": (TRAINER, "self.config.data.train_batch_size"),
    "data.max_prompt_length": ("utils/dataset/rl_dataset.py", 'config.get("max_prompt_length"'),
    "data.max_response_length": ("trainer/config/rollout/rollout.yaml", "oc.select:data.max_response_length"),
    "data.seed": ("trainer/ppo/utils.py", 'data_config.get("seed")'),
    "data.dataloader_num_workers": (TRAINER, 'self.config.data["dataloader_num_workers"]'),
    "data.apply_chat_template_kwargs.enable_thinking": (AGENT, 'self.data_config.get("apply_chat_template_kwargs"'),
    "reward.num_workers": ("experimental/reward_loop/reward_loop.py", "self.config.reward.num_workers"),
    "reward.custom_reward_function.path": ("trainer/ppo/reward.py", 'reward_fn_config.get("path")'),
    "reward.custom_reward_function.name": ("trainer/ppo/reward.py", 'reward_fn_config.get("name")'),
    "reward.custom_reward_function.reward_kwargs.settings": ("trainer/ppo/reward.py", '.get("reward_kwargs"'),
    "trainer.device": (TRAINER, "self.config.trainer.device"),
    "trainer.n_gpus_per_node": (TRAINER, "trainer.n_gpus_per_node"),
    "trainer.nnodes": (TRAINER, "trainer.nnodes"),
    "trainer.logger": (TRAINER, "self.config.trainer.logger"),
    "trainer.total_epochs": (TRAINER, "self.config.trainer.total_epochs"),
    "trainer.total_training_steps": (TRAINER, "self.config.trainer.total_training_steps"),
    "trainer.save_freq": (TRAINER, "self.config.trainer.save_freq"),
    "trainer.test_freq": (TRAINER, "self.config.trainer.test_freq"),
    "trainer.project_name": (TRAINER, "self.config.trainer.project_name"),
    "trainer.experiment_name": (TRAINER, "self.config.trainer.experiment_name"),
    "trainer.default_local_dir": (TRAINER, "self.config.trainer.default_local_dir"),
    "trainer.resume_mode": (TRAINER, "self.config.trainer.resume_mode"),
    "trainer.max_actor_ckpt_to_keep": (TRAINER, 'self.config.trainer.get("max_actor_ckpt_to_keep"'),
    "trainer.max_critic_ckpt_to_keep": (TRAINER, 'self.config.trainer.get("max_critic_ckpt_to_keep"'),
    "ray_kwargs.ray_init.include_dashboard": ("trainer/main_ppo.py", 'config.ray_kwargs.get("ray_init"'),
}

ON_CPUS = {
    f"{ACTOR}.fsdp_config.use_torch_compile": (ENGINE, "self.engine_config.use_torch_compile"),
    "actor_rollout_ref.ref.fsdp_config.use_torch_compile": (ENGINE, "self.engine_config.use_torch_compile"),
    "critic.fsdp.use_torch_compile": (ENGINE, "self.engine_config.use_torch_compile"),
    **{
        f"{engine}.mixed_precision.{kind}_dtype": (ENGINE, f'mixed_precision_config.get("{kind}_dtype"')
        for engine in (f"{ACTOR}.fsdp_config", "actor_rollout_ref.ref.fsdp_config", "critic.fsdp")
        for kind in ("param", "reduce", "buffer")
    },
    "actor_rollout_ref.model.use_remove_padding": (ENGINE, "self.model_config.use_remove_padding"),
    "critic.model.use_remove_padding": (ENGINE, "self.model_config.use_remove_padding"),
    "actor_rollout_ref.model.enable_gradient_checkpointing": (ENGINE, "enable_gradient_checkpointing"),
    "critic.model.enable_gradient_checkpointing": (ENGINE, "enable_gradient_checkpointing"),
    f"{ROLLOUT}.agent.agent_loop_manager_class": ("trainer/main_ppo.py", '.get("agent_loop_manager_class")'),
    f"{ROLLOUT}.agent.num_workers": (AGENT, "self.rollout_config.agent.num_workers"),
    f"{ROLLOUT}.calculate_log_probs": (TRAINER, "self.config.actor_rollout_ref.rollout.calculate_log_probs"),
    f"{ROLLOUT}.free_cache_engine": (WORKERS, "self.config.rollout.free_cache_engine"),
    f"{ROLLOUT}.checkpoint_engine.update_weights_bucket_megabytes": (WORKERS, ".update_weights_bucket_megabytes"),
    f"{ROLLOUT}.max_num_seqs": (SERVER, '"max_num_seqs": self.config.max_num_seqs'),
    f"{ROLLOUT}.engine_kwargs.vllm.kv_cache_memory_bytes": (SERVER, "**engine_kwargs"),
    "algorithm.rollout_correction.bypass_mode": (TRAINER, '.get("bypass_mode", False)'),
    **{
        f"ray_kwargs.ray_init.{name}": ("trainer/main_ppo.py", 'config.ray_kwargs.get("ray_init"')
        for name in ("num_cpus", "num_gpus", "object_store_memory")
    },
}

READ_ELSEWHERE = {
    "transfer_queue.backend.SimpleStorage.num_data_storage_units": "the package TransferQueue",
    "critic.ppo_micro_batch_size_per_gpu": "verl only validates it; its engine reads the three of critic.fsdp",
    f"{ACTOR}.fsdp_config.seed": "components/training/ppo/plugin/first_weights.py",
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


def test_the_reader_of_each_key_is_known_and_nothing_else_is_listed() -> None:
    assert sent() == READERS.keys() | ON_CPUS.keys() | READ_ELSEWHERE.keys()


@pytest.mark.parametrize("key", [*READERS, *ON_CPUS])
def test_verl_reads(key: str) -> None:
    file, text = (READERS | ON_CPUS)[key]
    [verl] = find_spec("verl").submodule_search_locations  # type: ignore[union-attr,misc]

    assert text in (Path(verl) / file).read_text(encoding="utf-8")
