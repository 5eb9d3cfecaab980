"""The peak of a computation's tensors in bytes, counted as they are made and freed; no device is needed."""

import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class PeakMemory(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Count the storages alive while this is active; `peak` is above those of the tensors named at the start."""

    def __init__(self, before: Iterable[torch.Tensor] = ()) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = self.peak = 0
        self.known = weakref.WeakSet([tensor.untyped_storage() for tensor in before])

    def __torch_dispatch__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, torch.Tensor) and (storage := tensor.untyped_storage()) not in self.known:
                self.known.add(storage)
                self.now += storage.nbytes()
                self.peak = max(self.peak, self.now)
                weakref.finalize(storage, self._free, storage.nbytes())
        return out

    def _free(self, size: int) -> None:
        self.now -= size
