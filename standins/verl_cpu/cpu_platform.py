"""Platform "cpu" for verl: an implementation of verl's accelerator interface for a CPU."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry


def _nothing(*args: Any, **named: Any) -> None:
    return None


def _zero(*args: Any, **named: Any) -> int:
    return 0


def _device_module() -> ModuleType:
    """Create a module with the functions of torch.cuda that verl calls; torch.cpu lacks most of them."""
    module = ModuleType("torch_cpu_as_accelerator")
    for name in ("set_device", "synchronize", "empty_cache", "ipc_collect", "reset_peak_memory_stats"):
        setattr(module, name, _nothing)
    for name in ("memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved"):
        setattr(module, name, _zero)
    functions: dict[str, Any] = {
        "current_device": _zero,
        "is_available": lambda: True,
        "is_bf16_supported": lambda: True,
        "device_count": lambda: 1,
        "mem_get_info": lambda *device: (0, 1),
        "get_device_name": lambda *device: "cpu",
        "get_device_capability": lambda *device: (None, None),
        "get_rng_state": lambda *device: torch.get_rng_state(),
        "set_rng_state": lambda state, *device: torch.set_rng_state(state),
        "manual_seed": torch.manual_seed,
        "manual_seed_all": torch.manual_seed,
        "current_stream": torch.cpu.current_stream,
        "Stream": torch.cpu.Stream,
        "stream": torch.cpu.stream,
    }
    for name, value in functions.items():
        setattr(module, name, value)
    return module


@PlatformRegistry.register(platform="cpu")
class CpuPlatform(PlatformBase):  # type: ignore[misc]
    """Platform of verl for VERL_PLATFORM=cpu. Its resource in Ray is called GPU, because verl requests GPUs."""

    device_name = vendor_name = "cpu"
    device_module = _device_module()

    set_device = synchronize = set_allocator_settings = empty_cache = _nothing
    profiler_start = profiler_stop = cudart = _nothing
    manual_seed = manual_seed_all = staticmethod(torch.manual_seed)

    def is_available(self) -> bool:
        return True

    def current_device(self) -> torch.device:
        return torch.device("cpu")

    def device_count(self) -> int:
        return 1

    def get_device_capability(self, device_index: int = 0) -> tuple[None, None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    @contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        yield

    def ray_resource_name(self) -> str:
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        return []

    def is_ipc_supported(self) -> bool:
        return False
