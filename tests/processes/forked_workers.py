"""The workers of pytest-xdist, forked from one process that has collected the tests.

Collecting imports torch, transformers and 900 modules: ten CPU seconds, once and not in each worker, and the garbage
collector of a fork does not visit what was there before. Each worker collects again, in one second, from the modules
that it finds imported.
"""

import json
import shlex

import pytest

from tests.processes.forkserver import forked

COLLECTED = ("tests.processes.collected",)
ARGUMENTS_VARIABLE = "QINGLAN_TEST_ARGUMENTS"
"""Pytest's arguments, as JSON, which say what is collected."""


def fork_workers(config: pytest.Config) -> None:
    """Let xdist start forks where it would start a Python for each worker."""
    workers = getattr(config.option, "tx", None) or []
    if not hasattr(config, "workerinput") and workers and set(workers) == {"popen"}:
        with pytest.MonkeyPatch.context() as environment:
            environment.delenv("PYTEST_XDIST_WORKER", raising=False)  # a test may be what runs pytest
            environment.setenv(ARGUMENTS_VARIABLE, json.dumps([str(word) for word in config.invocation_params.args]))
            command = shlex.join(forked("tests.processes.xdist_worker", libraries=COLLECTED))
        config.option.tx = [f"popen//python={command}"] * len(workers)
