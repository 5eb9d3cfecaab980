"""Questions to verl itself, each answered in a fresh process: verl and Ray read the environment as they are imported.

The processes are forked from one that has imported torch and the rest, which takes seven CPU seconds; verl's own
modules and Ray take one more.
"""

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, TypeVar, cast

from tests.processes.forked_runs import VERL
from tests.processes.forkserver import forked

Answer = TypeVar("Answer")
Environment = Mapping[str, str]


def ask(
    question: Callable[..., Answer], *args: Any, environment: Environment, libraries: tuple[str, ...] = VERL,
    python: str = sys.executable,
) -> Answer:  # fmt: skip
    """Call the function in a process that has this environment and these libraries, but nothing of verl."""
    command = forked(__name__, libraries=libraries, python=python)
    called = subprocess.run(
        command, input=pickle.dumps((question, args)), stdout=subprocess.PIPE, env=environment, check=True
    )
    answer, error = pickle.loads(called.stdout)
    if error is not None:
        raise error
    return cast(Answer, answer)


def call() -> None:
    """Answer the question on the standard input; what the libraries print goes to the standard error."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    question, args = pickle.load(sys.stdin.buffer)
    answer, error = None, None
    try:
        answer = question(*args)
    except Exception as raised:
        error = raised
    with answers:
        pickle.dump((answer, error), answers)


def composed(words: list[str]) -> Any:
    """The configuration that verl's command would compose from these overrides."""
    from hydra import compose, initialize_config_module

    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose("ppo_trainer", words)


def validated(words: list[str]) -> Any:
    """The whole configuration as plain data; an error where verl refuses it."""
    from omegaconf import OmegaConf
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config

    config = composed(words)
    validate_config(config, need_reference_policy(config), need_critic(config))
    return OmegaConf.to_container(config, resolve=True)


class Colocated(Exception):
    """verl has put its workers' settings together; the next step is Ray's."""


def micro_batches(words: list[str]) -> dict[str, dict[str, int]]:
    """In how many parts each engine computes an update, and a whole collection, on each device."""
    config = composed(words)
    engines = {"critic": critic_engine(config), **actor_engines(config)}
    devices = config.trainer.n_gpus_per_node * config.trainer.nnodes
    update = config.actor_rollout_ref.actor.ppo_mini_batch_size // devices
    collection = config.data.train_batch_size // devices
    return {
        "update": {
            name: parts(engines[name], update, engines[name].micro_batch_size_per_gpu) for name in ("actor", "critic")
        },
        "collection": {
            name: parts(engine, collection, engine.infer_micro_batch_size_per_gpu) for name, engine in engines.items()
        },
    }


def nothing(*args: Any, **named: Any) -> dict[str, Any]:
    return {}


def critic_engine(config: Any) -> Any:
    """The critic's settings, as verl's trainer hands them to its workers."""
    from verl.trainer.ppo.ray_trainer import Role
    from verl.trainer.ppo.v1 import trainer_base
    from verl.workers.engine_workers import ActorRolloutRefWorker, TrainingWorker

    def colocate(class_dict: Any) -> None:
        raise Colocated(class_dict)

    trainer_base.create_colocated_worker_cls = colocate
    pools = SimpleNamespace(
        create_resource_pool=nothing, resource_pool_dict={"global": "pool"}, get_resource_pool=lambda role: "pool"
    )
    trainer = SimpleNamespace(
        config=config, use_critic=True, use_reference_policy=True, resource_pool_manager=pools,
        role_worker_mapping={Role.ActorRolloutRef: ActorRolloutRefWorker, Role.Critic: TrainingWorker},
        _init_tokenizer=nothing, _init_dataloader=nothing, _init_dump_executor=nothing,
        _init_resource_pool_mgr=nothing,
    )  # fmt: skip
    try:
        trainer_base.PPOTrainer._setup(trainer)
    except Colocated as reached:
        return reached.args[0]["critic"].kwargs["config"].engine_config
    raise AssertionError("verl's trainer did not come to its workers")


def actor_engines(config: Any) -> dict[str, Any]:
    """The actor's and the reference's settings, as verl's worker hands them to its engines."""
    import torch
    from torch.distributed import HashStore  # type: ignore[attr-defined]
    from verl.workers.engine_workers import ActorRolloutRefWorker

    engines = {}

    def recorded(role: str) -> type:
        class Recorder(SimpleNamespace):
            reset = set_loss_fn = get_dispatch_collect = nothing

            def __init__(self, config: Any) -> None:
                engines[role] = config.engine_config

        return Recorder

    torch.distributed.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    for role in ("actor", "ref"):
        worker = object.__new__(ActorRolloutRefWorker)
        worker.config, worker.role, worker.distillation_enabled = config.actor_rollout_ref, role, False
        worker._omega_profiler_config = {}
        worker.actor_worker_cls = worker.ref_worker_cls = recorded(role)
        worker.set_dispatch_collect = nothing
        worker.init_model()
    return engines


def parts(engine: Any, rows: int, size: int) -> int:
    """Micro-batches of so many rows, as TrainingWorker asks verl for them."""
    import torch
    from tensordict import TensorDict
    from verl.utils import tensordict_utils
    from verl.workers.engine.utils import prepare_micro_batches

    ids = torch.nested.as_nested_tensor([torch.ones(20, dtype=torch.long)] * rows, layout=torch.jagged)
    data = TensorDict({"input_ids": ids}, batch_size=rows)
    tensordict_utils.assign_non_tensor(
        data, use_dynamic_bsz=engine.use_dynamic_bsz, micro_batch_size_per_gpu=size, max_token_len_per_gpu=32768
    )
    return len(prepare_micro_batches(data)[0])


class Fields(dict[str, Any]):
    def select(self, *names: str) -> "Fields":
        return self


class Batch:
    keys: tuple[str, ...] = ()
    partition_id = ""

    def __init__(self) -> None:
        self.extra_info: dict[str, Any] = {}

    def __len__(self) -> int:
        return 0


def adapter_off() -> tuple[tuple[bool, bool], tuple[bool, bool]]:
    """For stock verl and for ours: whether the reference's pass is told so, and whether the critic's would be."""
    from verl.trainer.ppo.v1 import trainer_base

    fields = Fields(log_probs=None, response_mask=None)
    trainer_base.tq = SimpleNamespace(kv_batch_get=lambda **query: Fields(fields), kv_batch_put=lambda **put: None)
    trainer_base.response_from_nested = lambda *args: None

    def passes() -> tuple[bool, bool]:
        without_adapter: list[bool] = []

        def compute(batch: Batch) -> list[Any]:
            without_adapter.append("no_lora_adapter" in batch.extra_info)
            return []

        rollout = SimpleNamespace(temperature=1.0)
        config = SimpleNamespace(actor_rollout_ref=SimpleNamespace(rollout=rollout))
        actor = SimpleNamespace(compute_log_prob=compute)
        trainer = SimpleNamespace(config=config, ref_in_actor=True, actor_rollout_wg=actor)
        batch = Batch()
        trainer_base.PPOTrainer._compute_ref_log_prob(trainer, batch, {})
        return without_adapter[0], "no_lora_adapter" in batch.extra_info

    stock = passes()
    import components.training.ppo.plugin.lora_guard  # noqa: F401 (patches what was imported above)

    return stock, passes()


def losses() -> dict[str, Any]:
    """verl's own losses and advantages of the plan's worked example."""
    import torch
    from verl.trainer.ppo.core_algos import compute_gae_advantage_return as compute_advantage
    from verl.trainer.ppo.core_algos import compute_policy_loss_vanilla, compute_value_loss
    from verl.workers.config import FSDPActorConfig

    mask = torch.ones(1, 1)
    config = FSDPActorConfig(
        strategy="fsdp", rollout_n=1, ppo_micro_batch_size_per_gpu=1,
        clip_ratio=0.2, clip_ratio_low=0.2, clip_ratio_high=0.2,
    )  # fmt: skip

    def policy(reward: float, new: float, old: float = -2.3, value: float = 0.5) -> tuple[float, float]:
        loss, metrics = compute_policy_loss_vanilla(
            torch.tensor([[old]]), torch.tensor([[new]]), torch.tensor([[reward - value]]), mask, "token-mean", config
        )
        return float(loss), metrics["actor/pg_clipfrac"]

    def value_loss(value: float, reward: float) -> float:
        values, returns = torch.tensor([[value]]), torch.tensor([[reward]])
        return float(compute_value_loss(values, returns, values, mask, 10.0, "token-mean")[0])

    advantages, returns = compute_advantage(
        torch.tensor([[0.65], [-0.3]]), torch.tensor([[0.5], [0.5]]), torch.ones(2, 1), 0.99, 0.95
    )
    return {
        "win": policy(0.65, -2.1), "lose": policy(-0.3, -2.1), "same": policy(0.65, -2.3),
        "value": value_loss(0.5, 0.65),
        "advantages": advantages.flatten().tolist(), "returns": returns.flatten().tolist(),
    }  # fmt: skip


def adapter_updates() -> dict[str, tuple[str, float]]:
    """For stock verl and for ours: precision of an adapter on a bfloat16 base as wide as Qwen3-32B, and the share of
    its entries that one step of the plan's learning rate moves.
    """
    import torch
    from torch.distributed import HashStore  # type: ignore[attr-defined]
    from verl.workers.engine.fsdp import transformer_impl

    torch.distributed.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)

    def updates() -> tuple[str, float]:
        engine = object.__new__(transformer_impl.FSDPEngine)
        lora = {"lora_rank": 8, "lora_alpha": 16, "target_modules": ["q_proj"]}
        engine.model_config = SimpleNamespace(**lora, target_parameters=None, exclude_modules=None)
        return moved_entries(engine._build_lora_module(wide_model()))

    stock = updates()
    import components.training.ppo.plugin.adapter_precision  # noqa: F401 (patches what was imported above)

    return {"stock": stock, "ours": updates()}


def wide_model() -> Any:
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    shape = {"num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 32}
    config = Qwen3Config(vocab_size=32, hidden_size=5120, intermediate_size=16, **shape)
    return Qwen3ForCausalLM(config).to(torch.bfloat16)


def moved_entries(adapted: Any) -> tuple[str, float]:
    """Share of the adapter's entries that one step of FSDP2, in verl's mixed precision, changes."""
    import torch
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    trained = {name: tensor for name, tensor in adapted.named_parameters() if tensor.requires_grad}
    for name, tensor in trained.items():
        if "lora_B" in name:
            tensor.data.normal_(std=0.01)  # while B is 0, A has no gradient
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (1,))
    fully_shard(adapted, mesh=mesh, mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.float32))
    [down] = (tensor for name, tensor in adapted.named_parameters() if "lora_A" in name)
    before = down.to_local().detach().clone()
    optimizer = torch.optim.AdamW([down], lr=1e-5)
    adapted(input_ids=torch.arange(16).unsqueeze(0)).logits.float().square().sum().backward()
    optimizer.step()
    return str(before.dtype), float((down.to_local() != before).float().mean())


def value_head(model: str) -> tuple[str, str]:
    """How stock verl fails to load a critic without flash-attn, and the attention that ours has."""
    import torch
    from transformers import AutoConfig
    from verl.utils import model as verl_model

    config = AutoConfig.from_pretrained(model, attn_implementation="sdpa", num_labels=1)
    try:
        verl_model.load_valuehead_model(model, torch.float32, config, False)
        stock = "loaded"
    except Exception as error:
        stock = f"{error} {error.__cause__}"
    import components.training.ppo.plugin.value_head  # noqa: F401 (patches what was imported above)

    loaded = verl_model.load_valuehead_model(model, torch.float32, config, False)
    return stock, loaded.config._attn_implementation


def rows_in_a_line(model: str, attention: str) -> float:
    """Largest difference of logits between single rows and rows joined to a line, as verl's engine joins them."""
    import torch
    from transformers import AutoModelForCausalLM

    loaded = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32, attn_implementation=attention).eval()
    rows = [torch.arange(3, 3 + length).unsqueeze(0) for length in (7, 12, 1, 5)]
    positions = torch.cat([torch.arange(row.shape[1]) for row in rows]).unsqueeze(0)
    with torch.inference_mode():
        line = loaded(torch.cat(rows, 1), attention_mask=None, position_ids=positions, use_cache=False).logits
        alone = torch.cat([loaded(row, use_cache=False).logits for row in rows], 1)
    return float((line - alone).abs().max())


def verl_file(path: str) -> Any:
    """A file of verl as a module, without its package, which wants vLLM."""
    from importlib.util import module_from_spec, spec_from_file_location

    import verl

    spec = spec_from_file_location("verl_file", f"{verl.__path__[0]}/{path}")
    assert spec is not None and spec.loader is not None
    spec.loader.exec_module(module := module_from_spec(spec))
    return module


def unanswered_transfers(folder: str) -> list[str]:
    """The errors of an actor whose vLLM is gone, and of vLLM whose actor is gone."""
    import asyncio

    import torch

    from components.training.ppo.plugin import weight_transfer

    module = verl_file("workers/rollout/vllm_rollout/bucketed_weight_transfer.py")
    weight_transfer.limit_waiting(module)
    weight_transfer.SECONDS = 0.3
    sender = module.BucketedWeightSender(f"ipc://{folder}/s", 1, use_shm=True)
    receiver = module.BucketedWeightReceiver(f"ipc://{folder}/r", torch.device("cpu"), use_shm=True)
    transfers: list[Callable[[], Any]] = [
        lambda: asyncio.run(sender.async_send_weights(iter([]))), lambda: receiver.receive_weights(print)
    ]  # fmt: skip
    errors = []
    for transfer in transfers:
        try:
            transfer()
        except Exception as error:
            errors.append(f"{type(error).__name__}: {error}")
    return errors


class Sent(Exception):
    """The agent loop has sent its prompt to the engine."""


class Recorder:
    """An engine that keeps what it is asked with and answers nothing."""

    async def generate(self, *, prompt_ids: list[int], **more: Any) -> Any:
        raise Sent(list(map(int, prompt_ids)))


def rollout_prompts(words: list[str], model: str, parquet: str) -> list[list[int]]:
    """The tokens that verl's agent loop sends for each row of its dataset."""
    import asyncio

    from verl.experimental.agent_loop.agent_loop import DictConfigWrap
    from verl.experimental.agent_loop.single_turn_agent_loop import SingleTurnAgentLoop
    from verl.utils import hf_tokenizer
    from verl.utils.dataset.rl_dataset import RLHFDataset

    config, tokenizer = composed(words), hf_tokenizer(model)
    rows = RLHFDataset(parquet, tokenizer, config.data)

    async def prompt(row: dict[str, Any]) -> list[int]:
        loop = SingleTurnAgentLoop(
            DictConfigWrap(config), Recorder(), tokenizer, None, RLHFDataset, DictConfigWrap(config.data), "qwen3"
        )
        try:
            await loop.run({}, raw_prompt=row["raw_prompt"])
        except Sent as sent:
            return list(sent.args[0])
        raise AssertionError("verl's agent loop sent nothing")

    return [asyncio.run(prompt(rows[number])) for number in range(len(rows))]


if __name__ == "__main__":
    call()
