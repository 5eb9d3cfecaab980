"""Each Python of a run under test loads this file: a step or a server of the run goes on as a fork.

tests/processes/forked_runs.py says which modules, and starts the processes that fork.
"""

import json
import os
import sys
from pathlib import Path

FORKS_VARIABLE = "QINGLAN_TEST_FORKS"
COMMAND = "from commands.cli import main; main()"
"""The command `qinglan`, as tests start it."""


def _module_words(words: list[str]) -> list[str]:
    """The words of `-m MODULE`, also for the command, and where torchrun starts a library's module by its path."""
    if words[:2] == ["-c", COMMAND]:
        return ["-m", "tests.processes.qinglan_command", *words[2:]]
    path = words[1] if words[:1] == ["-u"] else words[0] if words else ""
    _, installed, module = path.partition("/site-packages/")
    if not installed or not module.endswith(".py"):
        return words
    return ["-m", module.removesuffix(".py").replace("/", "."), *words[words.index(path) + 1 :]]


def _go_on_as_a_fork() -> None:
    sockets = json.loads(os.environ.get(FORKS_VARIABLE, "{}")).get(sys.prefix, {})
    words = _module_words(sys.orig_argv[1:])
    if words[:1] == ["-m"] and words[1] in sockets:
        sys.path.insert(0, str(Path(__file__).parents[2]))
        from tests.processes.forkserver import client

        client(sockets[words[1]], words[1:])


_go_on_as_a_fork()
