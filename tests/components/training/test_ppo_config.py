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

ENGINES = """
import json, sys
from types import SimpleNamespace

import torch
from hydra import compose, initialize_config_module
from tensordict import TensorDict
from verl.trainer.ppo.ray_trainer import Role
from verl.trainer.ppo.v1 import trainer_base
from verl.utils import tensordict_utils
from verl.workers.engine.utils import prepare_micro_batches
from verl.workers.engine_workers import ActorRolloutRefWorker, TrainingWorker

with initialize_config_module("verl.trainer.config", version_base=None):
    config = compose("ppo_trainer", json.loads(sys.argv[1]))
engines = {}


def nothing(*args, **named):
    return {}


class Colocated(Exception):
    "verl has put its workers' settings together; the next step is Ray's."


def colocate(class_dict):
    raise Colocated(class_dict)


trainer_base.create_colocated_worker_cls = colocate
pools = SimpleNamespace(
    create_resource_pool=nothing, resource_pool_dict={"global": "pool"}, get_resource_pool=lambda role: "pool"
)
trainer = SimpleNamespace(
    config=config, use_critic=True, use_reference_policy=True, resource_pool_manager=pools,
    role_worker_mapping={Role.ActorRolloutRef: ActorRolloutRefWorker, Role.Critic: TrainingWorker},
    _init_tokenizer=nothing, _init_dataloader=nothing, _init_dump_executor=nothing, _init_resource_pool_mgr=nothing,
)
try:
    trainer_base.PPOTrainer._setup(trainer)
except Colocated as reached:
    engines["critic"] = reached.args[0]["critic"].kwargs["config"].engine_config


def recorded(role):
    class Recorder(SimpleNamespace):
        reset = set_loss_fn = get_dispatch_collect = nothing

        def __init__(self, config):
            engines[role] = config.engine_config

    return Recorder


torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
for role in ("actor", "ref"):
    worker = object.__new__(ActorRolloutRefWorker)
    worker.config, worker.role, worker.distillation_enabled = config.actor_rollout_ref, role, False
    worker._omega_profiler_config = {}
    worker.actor_worker_cls = worker.ref_worker_cls = recorded(role)
    worker.set_dispatch_collect = nothing
    worker.init_model()


def parts(engine, rows, size):
    "Micro-batches of so many rows, as TrainingWorker asks verl for them."
    ids = torch.nested.as_nested_tensor([torch.ones(20, dtype=torch.long)] * rows, layout=torch.jagged)
    data = TensorDict({"input_ids": ids}, batch_size=rows)
    tensordict_utils.assign_non_tensor(
        data, use_dynamic_bsz=engine.use_dynamic_bsz, micro_batch_size_per_gpu=size, max_token_len_per_gpu=32768
    )
    return len(prepare_micro_batches(data)[0])


devices = config.trainer.n_gpus_per_node * config.trainer.nnodes
update, collection = (
    size // devices for size in (config.actor_rollout_ref.actor.ppo_mini_batch_size, config.data.train_batch_size)
)
print(json.dumps({
    "update": {name: parts(engines[name], update, engines[name].micro_batch_size_per_gpu)
               for name in ("actor", "critic")},
    "collection": {name: parts(engine, collection, engine.infer_micro_batch_size_per_gpu)
                   for name, engine in engines.items()},
}))
"""


def composed(config: PpoConfig, model: Path, script: str = COMPOSE) -> Any:
    """What verl would run with, as a script over its composed configuration prints it; an error where it refuses."""
    places = Places(tiny_model(model), *(Path(f"/w/{name}") for name in Places._fields[1:]))
    given = [word for word in overrides(config, places) if not word.startswith("hydra.")]
    done = subprocess.run(
        [sys.executable, "-c", script, json.dumps(given)], capture_output=True, text=True,
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
@pytest.mark.parametrize(
    "config",
    [
        PpoConfig(),
        PpoConfig.parse({"lora": {"rank": 0}, "hardware": {"per_node": 8, "offload": True}}, "ppo"),
        PpoConfig.parse({"accumulation": 2, "hardware": {"nodes": 2}}, "ppo"),
        laptop(accumulation=2),
    ],
    ids=["a100x4", "a100x8-full", "a100-multinode", "laptop"],
)
def test_every_engine_of_verl_computes_in_the_parts_that_are_asked_for(config: PpoConfig, tmp_path: Path) -> None:
    """Parts of an update, and of a whole collection's values and probabilities, on each device."""
    found = composed(config, tmp_path, ENGINES)

    assert found["update"] == dict.fromkeys(("actor", "critic"), config.accumulation)
    collected = config.collection // config.batch * config.accumulation
    assert found["collection"] == dict.fromkeys(("actor", "critic", "ref"), collected)


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
