"""Import this module to import every test of a run; `tests.processes.forked_workers` says why."""

import contextlib
import io
import json
import os

import pytest

from tests.processes.forked_workers import ARGUMENTS_VARIABLE


def _collect(arguments: list[str]) -> dict[str, str]:
    """Import the tests that pytest would collect; gives the variables of the environment that their imports set.

    A worker collects again and reports what cannot be imported, so that the output here is of no use.
    """
    before = dict(os.environ)
    # Without the last, pytest would collect garbage among all these modules: half a second before any worker starts.
    plugins = ["-p", "no:benchmarks.tests.plugin", "-p", "no:unraisableexception"]
    alone = ["--numprocesses", "0", "--dist", "no", "--collect-only", *plugins]
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        pytest.main([*arguments, *alone])
    return {name: value for name, value in os.environ.items() if before.get(name) != value}


SET_BY_IMPORTS = _collect(json.loads(os.environ[ARGUMENTS_VARIABLE]))
