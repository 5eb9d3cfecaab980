"""Figures that no shape gives: each with its basis, and where it comes from."""

from typing import Literal, NamedTuple

Basis = Literal["counted", "measured", "published", "guessed"]
"""`counted` follows from shapes and settings alone; the others name where a constant comes from."""

GIB, GB = 1024**3, 10**9


class Constant(NamedTuple):
    value: float
    basis: Basis
    source: str


CUDA_CONTEXT = Constant(1.0 * GIB, "guessed", "driver, kernels and libraries of a training process on its card")
NCCL = Constant(1.0 * GIB, "guessed", "buffers for the communication between cards")
FRAGMENTS = Constant(0.03, "guessed", "share of the tensors that the allocator holds and cannot use")
VLLM_WORK = Constant(2.5 * GIB, "guessed", "vLLM's largest activations, and its CUDA graphs")
VLLM_ASLEEP = Constant(2.0 * GIB, "guessed", "context and communication of a vLLM that sleeps")
TRANSFER = Constant(2.0 * GIB, "published", "verl's update_weights_bucket_megabytes: 2048")
LIVE_PARAMETERS = Constant(1e9, "published", "ms-swift's zero3: stage3_max_live_parameters")
PROCESS = Constant(8.0 * GIB, "guessed", "the machine's memory for each card: Python, torch, Ray, vLLM")
CPU_PROCESSES = Constant(4.6 * GB, "measured", "31 processes of verl and vLLM on a CPU, with a tiny model")

UTILISATION = Constant(0.3, "guessed", "share of a card's teraflops that training reaches")
READ_SHARE = Constant(0.6, "guessed", "share of a card's bandwidth at which generation reads the weights")
SYNC_RATE = Constant(5.0 * GB, "guessed", "bytes a second in which the rollout takes new weights")
LOAD_RATE = Constant(0.5 * GB, "guessed", "bytes a second in which weights are read from a volume")
ROW_TOKENS = Constant(250, "guessed", "tokens of a training row, where no sheet is at hand")
ANSWER_TOKENS = Constant(40, "guessed", "tokens of a rewrite")
