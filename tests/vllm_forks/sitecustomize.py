"""Each Python of a test's vLLM loads this file: its processes are forked from its server, as they are on a GPU.

On a CPU vLLM would start each as a Python of its own, which imports it again: seven seconds of a core. A module that
tests/processes/forked_runs.py names goes on as a fork here, too.
"""

import multiprocessing
import runpy
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from components.training.ppo.plugin.import_hooks import when_imported


@when_imported("vllm.utils.system_utils")
def _fork_processes(module: ModuleType) -> None:
    module.multiprocessing = SimpleNamespace(get_context=_context)  # type: ignore[attr-defined]


def _context(method: str) -> Any:
    """A process of Ray is never forked: Ray's threads would be missing in the copy."""
    ray = sys.modules.get("ray")
    return multiprocessing.get_context(method if ray is not None and ray.is_initialized() else "fork")


runpy.run_path(str(Path(__file__).parents[1] / "run_forks" / "sitecustomize.py"))
