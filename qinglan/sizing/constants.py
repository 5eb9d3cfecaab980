"""Constants that do not follow from a model's shape, each with its basis and source."""

from typing import Literal, NamedTuple

Basis = Literal["counted", "measured", "published", "guessed"]
"""Origin of a number: `counted` follows only from shapes and settings, the other words name the source of a
constant."""

GIB, GB = 1024**3, 10**9
GIGABIT = GB / 8


class Constant(NamedTuple):
    value: float
    basis: Basis
    source: str


CUDA_CONTEXT = Constant(0.81 * GB, "measured", "driver, kernels and libraries of a training process on an H100")
VERL_CONTEXT = Constant(1.23 * GB, "measured", "the same of verl's training process, its models away, on an H100")
NCCL = Constant(1.0 * GIB, "guessed", "buffers for the communication between cards")
FRAGMENTS = Constant(0.03, "guessed", "share of the tensors that the allocator holds and cannot use")
"""Fragments took 0.9 to 2.3 GB on an H100 with free memory. They were not measured under memory pressure."""

VLLM_WORK = Constant(2.5 * GIB, "measured", "vLLM's largest activations and CUDA graphs, Qwen3-32B on an H100")
VLLM_ASLEEP = Constant(1.14 * GB, "measured", "context of a vLLM that sleeps, on an H100")
VLLM_BESIDE = Constant(0.9 * GB, "measured", "held by a writing vLLM above its share, on an H100")
TRANSFER = Constant(2.0 * GIB, "published", "verl's update_weights_bucket_megabytes: 2048")
LIVE_PARAMETERS = Constant(1e9, "published", "ms-swift's zero3: stage3_max_live_parameters")
PROCESS = Constant(8.0 * GIB, "guessed", "the machine's memory for each card: Python, torch, vLLM")
RAY = Constant(15 * GB, "measured", "memory of Ray, verl's driver and the eight processes that ask vLLM")
PINNED = Constant(1.4, "measured", "memory of waiting weights by their bytes: pinned, powers of two; Qwen3-4B")
CPU_PROCESSES = Constant(4.6 * GB, "measured", "31 processes of verl and vLLM on a CPU, with a tiny model")

UTILISATION = Constant(0.3, "measured", "share of a card's teraflops: LoRA of Qwen3-8B .27, 32B .32, on an H100")
LAYER_SECONDS = Constant(0.009, "measured", "least time of a layer in each part of a batch, for LoRA on an H100")
VERL_LAYER_SECONDS = Constant(0.0103, "measured", "the same in verl, all weights: a critic of 0.6B on an H100")
VERL_LORA_LAYER_SECONDS = Constant(
    0.015, "measured", "the same with an adapter, at least: Qwen3-4B's update had not ended after it"
)
PASS_LAYER_SECONDS = Constant(0.004, "measured", "the same without learning, for Qwen3-4B's probabilities in verl")
READ_SHARE = Constant(0.73, "measured", "share of a card's bandwidth when vLLM writes, Qwen3-32B on an H100")
SYNC_RATE = Constant(1.1 * GB, "measured", "bytes a second in which a rollout gets merged weights: 4B on an H100")
LOAD_RATE = Constant(0.5 * GB, "guessed", "bytes a second in which weights are read from a volume")
ROW_TOKENS = Constant(250, "guessed", "tokens of a training row, where no sheet is at hand")
ANSWER_TOKENS = Constant(40, "guessed", "tokens of a rewrite")
