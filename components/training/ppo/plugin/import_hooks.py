"""Patch a module when it is imported, instead of importing it only for the patch.

@when_imported("verl.trainer.ppo.v1.trainer_base")
def _patch(module): module.PPOTrainer.step = ...
"""

import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

Patch = Callable[[ModuleType], None]


class _PatchingLoader(Loader):
    """Loader that runs the module's own loader, and then the patches."""

    def __init__(self, loader: Loader, patches: Sequence[Patch]) -> None:
        self._loader, self._patches = loader, patches

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        for patch in self._patches:
            patch(module)


class _PatchFinder(MetaPathFinder):
    def __init__(self) -> None:
        self.waiting: dict[str, list[Patch]] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        patches = self.waiting.get(fullname)
        spec = PathFinder.find_spec(fullname, path, target) if patches else None
        if spec is not None and spec.loader is not None and patches:
            spec.loader = _PatchingLoader(spec.loader, patches)
        return spec


_finder = _PatchFinder()


def when_imported(name: str) -> Callable[[Patch], Patch]:
    """Call the decorated function with the module: now if it is loaded, else as soon as it is imported."""

    def register(patch: Patch) -> Patch:
        if name in sys.modules:
            patch(sys.modules[name])
            return patch
        if _finder not in sys.meta_path:
            sys.meta_path.insert(0, _finder)
        _finder.waiting.setdefault(name, []).append(patch)
        return patch

    return register
