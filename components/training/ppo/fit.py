"""Estimate memory, disk, steps and hours of PPO with verl, from its settings and the shapes of actor and critic.

verl shards actor and critic over all cards with FSDP2
(https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html) and gathers one layer at a time in bf16. The
rollout's vLLM sleeps while the models train, and fills its share of each card while it generates.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from components.training.ppo.config import PpoConfig
from qinglan.sizing.activations import PPO_LOSS, classifier_activations, decoder_activations
from qinglan.sizing.cards import Card
from qinglan.sizing.constants import (
    ANSWER_TOKENS,
    CPU_PROCESSES,
    NCCL,
    PASS_LAYER_SECONDS,
    PINNED,
    PROCESS,
    RAY,
    SYNC_RATE,
    TRANSFER,
    VERL_CONTEXT,
    VERL_LAYER_SECONDS,
    VERL_LORA_LAYER_SECONDS,
    VLLM_ASLEEP,
    VLLM_BESIDE,
)
from qinglan.sizing.ledger import Amount, Phase, constant, phase, with_fragments
from qinglan.sizing.shape import ModelShape
from qinglan.sizing.speed import (
    Steps,
    compute_seconds,
    crossing_seconds,
    forward_operations,
    generation_seconds,
    load_seconds,
    training_operations,
    training_seconds,
)
from qinglan.sizing.vllm import VllmSettings

FP32, BF16 = 4, 2
"""Bytes per number: FP32 for trained weights, gradients and moments; BF16 for gathered weights and the rollout."""

WIDTHS = {"bfloat16": BF16, "float32": FP32}


class Shards(NamedTuple):
    """Bytes on each card of the tensors that are sharded over all cards."""

    actor: Amount
    adapter: Amount
    actor_gradients: Amount
    actor_adam: Amount
    critic: Amount
    critic_gradients: Amount
    critic_adam: Amount

    @property
    def resting_actor(self) -> tuple[Amount, ...]:
        return self.actor, self.adapter, self.actor_adam

    @property
    def resting_critic(self) -> tuple[Amount, ...]:
        return self.critic, self.critic_adam


def shards(config: PpoConfig, actor: ModelShape, critic: ModelShape | None) -> Shards:
    """Return the bytes of each shard. Trained tensors are fp32; the base under an adapter has `hardware.dtype`."""
    rank, cards = config.lora.rank, config.devices
    adapter = actor.adapter(rank) if rank else 0
    trained = adapter or actor.parameters
    values = critic.classifier(1, bias=True) if critic else 0
    return Shards(
        Amount("actor's weights", actor.parameters * base_width(config) / cards),
        Amount("adapter", adapter * FP32 / cards),
        Amount("actor's gradients", trained * FP32 / cards),
        Amount("actor's AdamW", trained * 2 * FP32 / cards),
        Amount("critic's weights", values * FP32 / cards),
        Amount("critic's gradients", values * FP32 / cards),
        Amount("critic's AdamW", values * 2 * FP32 / cards),
    )


def base_width(config: PpoConfig) -> int:
    """Return the bytes per weight of the actor; on a CPU all weights are fp32."""
    trained = not config.lora.rank or config.hardware.device == "cpu"
    return FP32 if trained else WIDTHS[config.hardware.dtype]


def card_phases(config: PpoConfig, actor: ModelShape, critic: ModelShape | None, usable: float) -> tuple[Phase, ...]:
    """Return the bytes on each card in each phase. `usable` is the available memory of a card."""
    parts, hardware, tokens = shards(config, actor, critic), config.hardware, micro_batch_tokens(config)
    # Parts that stay on the card while the other model uses it. With `offload` they are in the machine's memory.
    actor_rest, critic_rest = ((), ()) if hardware.offload else (parts.resting_actor, parts.resting_critic)
    context = (constant("CUDA", VERL_CONTEXT), *([constant("NCCL", NCCL)] if config.devices > 1 else []))
    asleep = [constant("vLLM asleep", VLLM_ASLEEP)]
    if hardware.tensor_parallel > 1:
        asleep.append(constant("vLLM's NCCL", NCCL))

    loaded = (parts.actor, parts.adapter) if hardware.offload else ()
    transfer = (
        Amount("vLLM's weights", actor.parameters * BF16 / hardware.tensor_parallel),
        *asleep,
        Amount("the largest tensor", actor.embedding * base_width(config)),
        constant("transfer", TRANSFER),
    )
    sending = with_fragments((*actor_rest, *loaded, *critic_rest))
    writing = (
        *with_fragments((*actor_rest, *critic_rest)),
        Amount("the embedding, sent", actor.embedding * BF16),  # stays on the card after the transfer
        Amount("vLLM's share", hardware.rollout_memory * usable),
        constant("vLLM beside it", VLLM_BESIDE),
    )
    work = decoder_activations(actor, tokens, config.lora.rank, PPO_LOSS)
    if not config.lora.rank:
        work = activations_or_gradient(work, actor, config.devices)
    updating = (*parts.resting_actor, parts.actor_gradients, *critic_rest, gathered(actor), *work)
    phases = [
        phase("weights to the rollout", *sending, *transfer, *context),
        phase("rollout", *writing, *context),
        phase("actor's update", *with_fragments(updating), *asleep, *context),
    ]
    if critic:
        work = activations_or_gradient(classifier_activations(critic, tokens), critic, config.devices)
        updating = (*actor_rest, *parts.resting_critic, parts.critic_gradients, gathered(critic), *work)
        phases.append(phase("critic's update", *with_fragments(updating), *asleep, *context))
    return tuple(phases)


def micro_batch_tokens(config: PpoConfig) -> int:
    return config.micro_batch * (config.max_prompt_tokens + config.max_new_tokens)


def gathered(shape: ModelShape) -> Amount:
    """Return the bytes of the current layer, gathered in bf16, and of the next layer or the embedding."""
    return Amount("gathered layers", BF16 * (max(shape.embedding, shape.layer_parameters) + shape.layer_parameters))


def activations_or_gradient(activations: Sequence[Amount], shape: ModelShape, cards: int) -> tuple[Amount, ...]:
    """Return the activations or the embedding's gradient, whichever is larger, because activations are freed before
    this gradient is summed. The whole gradient exists in bf16 and in fp32, in addition to its fp32 shard."""
    summed = Amount("the embedding's gradient", shape.embedding * (BF16 + FP32 + FP32 / cards))
    return tuple(activations) if sum(part.bytes for part in activations) > summed.bytes else (summed,)


def rollout_settings(config: PpoConfig) -> VllmSettings:
    hardware = config.hardware
    longest = config.max_prompt_tokens + config.max_new_tokens
    return VllmSettings(hardware.tensor_parallel, hardware.rollout_memory, longest)


def host_phases(config: PpoConfig, actor: ModelShape, critic: ModelShape | None) -> tuple[Phase, ...]:
    return _beside_gpus(config, actor, critic) if config.hardware.device == "cuda" else _on_cpu(config, actor, critic)


def _on_cpu(config: PpoConfig, actor: ModelShape, critic: ModelShape | None) -> tuple[Phase, ...]:
    """Return the bytes of all processes together. All weights are fp32, and the rollout has its own actor."""
    here = config.hardware.per_node
    parts = Shards(*(Amount(part.name, part.bytes * here) for part in shards(config, actor, critic)))
    tokens = micro_batch_tokens(config) * here
    rollout = Amount("the rollout's copy", actor.parameters * FP32)
    processes = constant("processes", CPU_PROCESSES)
    resting = (*parts.resting_actor, *parts.resting_critic, rollout, processes)
    work = decoder_activations(actor, tokens, config.lora.rank, PPO_LOSS)
    phases = [phase("actor's update", *resting, parts.actor_gradients, *work)]
    if critic:
        work = classifier_activations(critic, tokens)
        phases.append(phase("critic's update", *resting, parts.critic_gradients, *work))
    return tuple(phases)


def _beside_gpus(config: PpoConfig, actor: ModelShape, critic: ModelShape | None) -> tuple[Phase, ...]:
    """Return the bytes of a machine's memory if it has GPUs.

    While a model loads, the first process needs memory for the whole model; if the embedding is also the output layer
    (tied), each process does. Before each rollout verl copies the base to this memory, to remove the merged adapter
    again. With `offload` the shards wait in it. If all weights are trained, it always holds the reference.
    """
    parts, here = shards(config, actor, critic), config.hardware.per_node
    processes = constant("processes", PROCESS, here), constant("Ray", RAY)
    waiting: list[Amount] = []
    if config.hardware.offload:
        resting = (*parts.resting_actor, *parts.resting_critic)
        waiting = [constant(f"{part.name}, waiting", PINNED, part.bytes * here) for part in resting if part.bytes]
    if config.kl and not config.lora.rank:
        width = WIDTHS[config.hardware.dtype]
        waiting.append(Amount("reference", actor.parameters * width * here / config.devices))
    copied = Amount("copy of the base", parts.actor.bytes * here if config.lora.rank else 0)
    whole = [actor.parameters * base_width(config) * (here if actor.tied else 1)]
    if critic:
        whole.append(critic.classifier(1, bias=True) * FP32 * (here if critic.tied else 1))
    return (
        phase("loading", Amount("whole models", max(whole)), *waiting, *processes),
        phase("weights to the rollout", copied, *waiting, *processes),
    )


def checkpoint_bytes(config: PpoConfig, actor: ModelShape, critic: ModelShape | None) -> tuple[int, int]:
    """Return the bytes of a checkpoint of the actor and of the critic: trained weights and AdamW's moments."""
    trained = actor.adapter(config.lora.rank) if config.lora.rank else actor.parameters
    return trained * 3 * FP32, critic.classifier(1, bias=True) * 3 * FP32 if critic else 0


def disk(config: PpoConfig, actor: ModelShape, critic: ModelShape | None) -> tuple[Amount, ...]:
    """Return the bytes of the training's folder. A new checkpoint is written before the oldest one is deleted."""
    of_actor, of_critic = checkpoint_bytes(config, actor, critic)
    count = config.keep + 1
    return (
        Amount(f"{count} checkpoints of the actor, and the best", (count + 1) * of_actor),
        Amount(f"{count} checkpoints of the critic", count * of_critic),
        Amount("RL model", actor.parameters * BF16),
    )


def steps(config: PpoConfig, rows: int) -> Steps:
    """Return the steps over the training prompts, and the tests on dev, including one before the first step."""
    counted = config.with_steps(rows)
    return Steps(rows // config.prompts, counted.steps, 1 + math.ceil(counted.steps / counted.every))


def seconds(
    config: PpoConfig, actor: ModelShape, critic: ModelShape | None, rows: int, row_tokens: float, card: Card,
    network: float,
) -> float:  # fmt: skip
    """Return the seconds of loading, rollouts, updates and weight transfers, without waiting for services.

    On several machines a pass takes at least as long as the network needs for its weights, at `network` bytes a
    second. The two times overlap, since weights arrive while earlier layers compute.
    """
    hardware, cards, tokens = config.hardware, config.devices, config.collection * row_tokens
    multiplied = actor.multiplied + actor.embedding
    parts = config.ppo_epochs * config.collection / (config.micro_batch * cards)
    trained = config.ppo_epochs * training_operations(multiplied, tokens, not config.lora.rank)
    layer = VERL_LORA_LAYER_SECONDS if config.lora.rank else VERL_LAYER_SECONDS
    read = parts / config.ppo_epochs

    def crossing(size: float) -> float:
        return crossing_seconds(size, cards, hardware.nodes, network)

    whole = crossing(actor.parameters * BF16)
    adapter = actor.adapter(config.lora.rank)
    learned = crossing(update_bytes(actor.parameters, adapter or actor.parameters))
    computed = max(training_seconds(trained, parts, actor.layers, card, cards, layer), parts * learned)
    prompts = forward_operations(multiplied, tokens)
    computed += compute_seconds(prompts, card, cards)
    # Two forward passes compute the log-probabilities of the old policy and of the reference.
    passed = training_seconds(prompts, read, actor.layers, card, cards, PASS_LAYER_SECONDS)
    computed += 2 * max(passed, read * whole)
    if critic:
        trained = config.ppo_epochs * training_operations(critic.multiplied, tokens, True)
        learned = crossing(update_bytes(critic.body, critic.body))
        updated = training_seconds(trained, parts, critic.layers, card, cards, VERL_LAYER_SECONDS)
        computed += max(updated, parts * learned)
        passed = training_seconds(
            forward_operations(critic.multiplied, tokens), read, critic.layers, card, cards, PASS_LAYER_SECONDS
        )
        computed += max(passed, read * crossing(critic.body * BF16))
    written = generation_seconds(actor, ANSWER_TOKENS.value, BF16, card, hardware.tensor_parallel)
    sent = actor.parameters * BF16 / SYNC_RATE.value + whole
    each = computed + written + sent
    return 3 * load_seconds(actor.parameters * BF16) + steps(config, rows).total * each


def update_bytes(weights: int, trained: int) -> int:
    """Return the bytes that the cards exchange for one part of a batch: weights in bf16 for the forward and backward
    pass, and gradients of trained weights in fp32. verl shards over the cards of all machines (fsdp_size: -1)."""
    return 2 * BF16 * weights + FP32 * trained
