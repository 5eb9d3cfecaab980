"""Patches of vLLM and verl for a CPU: weights can be loaded again, and sleep loses the same data as on a GPU.
An offloaded model or optimizer cannot compute until it is loaded.

verl's worker extension imports these modules into vLLM's workers too.
"""

from typing import Any

from components.training.ppo.plugin.import_hooks import when_imported
from qinglan.terminal import say


# vLLM packs a layer's weight for the processor, and could then not load the weights of the next step.
# https://github.com/vllm-project/vllm/blob/main/vllm/model_executor/layers/utils.py (dispatch_cpu_unquantized_gemm)
@when_imported("vllm.model_executor.layers.utils")
def _weights_stay(module: Any) -> None:

    def keep_weight(layer: Any, remove_weight: bool) -> None:
        import torch

        layer.cpu_linear = lambda x, weight, bias: torch.nn.functional.linear(x, weight, bias)

    module.dispatch_cpu_unquantized_gemm = keep_weight


# vLLM has sleep mode only on accelerators: https://docs.vllm.ai/en/latest/features/sleep_mode.html
@when_imported("vllm.platforms.cpu")
def _allow_sleep(module: Any) -> None:
    module.CpuPlatform.is_sleep_mode_available = lambda self: True


def sleep(worker: Any, level: int = 1) -> None:
    """Overwrite all weights and buffers with NaN, because a worker on a GPU frees their memory.

    Buffers, and at level 1 also weights, are copied before, as on a GPU.
    """
    model = worker.model_runner.model
    copied = dict(model.named_buffers()) | (dict(model.named_parameters()) if level == 1 else {})
    worker.copied = {name: tensor.detach().clone() for name, tensor in copied.items()}
    for tensor in [*model.parameters(), *model.buffers()]:
        if tensor.is_floating_point():
            tensor.data.fill_(float("nan"))
    say(f"vLLM sleeps at level {level}")


def wake_up(worker: Any, tags: list[str] | None = None) -> None:
    """Restore the copied tensors. The cache wakes last; raises a RuntimeError if a weight is not loaded by then."""
    model = worker.model_runner.model
    if tags is None or "weights" in tags:
        for name, tensor in [*model.named_buffers(), *model.named_parameters()]:
            if name in worker.copied:
                tensor.data.copy_(worker.copied[name])
        worker.copied = {}
    if tags is None or "kv_cache" in tags:
        for cache in worker.model_runner.kv_caches:
            cache.zero_()
        lost = [name for name, tensor in model.named_parameters() if tensor.isnan().any()]
        if lost:
            raise RuntimeError(f"vLLM is awake without its weights: {', '.join(lost[:3])} ({len(lost)} in all).")


@when_imported("vllm.v1.worker.cpu_worker")
def _sleep_like_a_gpu(module: Any) -> None:
    module.CPUWorker.sleep, module.CPUWorker.wake_up = sleep, wake_up


def offload(owner: Any, add_hook: Any) -> None:
    """Mark a model or optimizer as offloaded: it can be read, as in a machine's memory, but must not compute."""
    if not hasattr(owner, "waits"):
        add_hook(refuse_waiting)
        say(f"{type(owner).__name__} is offloaded")
    owner.waits = True


def refuse_waiting(owner: Any, *arguments: Any) -> None:
    if owner.waits:
        raise RuntimeError(f"{type(owner).__name__} computes while it is offloaded.")


def offload_model(model: Any, empty_cache: bool = True) -> None:
    offload(model, model.register_forward_pre_hook)


def offload_optimizer(optimizer: Any) -> None:
    if optimizer.state:
        offload(optimizer, optimizer.register_step_pre_hook)


def load(owner: Any, device: Any = None) -> None:
    if hasattr(owner, "waits"):
        owner.waits = False


@when_imported("verl.utils.fsdp_utils")
def _offload_like_a_gpu(module: Any) -> None:
    module.offload_fsdp_model_to_cpu, module.load_fsdp_model_to_gpu = offload_model, load
    module.offload_fsdp_optimizer, module.load_fsdp_optimizer = offload_optimizer, load


ACCELERATOR = "accelerator"
"""Name for the device where a model computes. verl would call this device and the machine's memory both "cpu"."""


@when_imported("verl.workers.engine.base")
def _enter_on_the_accelerator(module: Any) -> None:
    def enter(context: Any) -> None:
        context.engine.mode = context.mode
        context._context_switch(ACCELERATOR)

    module.BaseEngineCtx.__enter__ = enter


@when_imported("verl.workers.engine.fsdp.transformer_impl")
def _move_to_memory_or_accelerator(module: Any) -> None:
    def to(engine: Any, device: str, model: bool = True, optimizer: bool = True, grad: bool = True) -> None:
        if engine.engine_config.forward_only:
            return
        if model:
            (offload_model if device == "cpu" else load)(engine.module)
        if optimizer and engine.optimizer is not None:
            (offload_optimizer if device == "cpu" else load)(engine.optimizer)

    module.FSDPEngine.to = to
