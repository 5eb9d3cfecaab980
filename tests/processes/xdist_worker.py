"""A worker of pytest-xdist in a fork; `tests.processes.forked_workers` says why."""

import os
import sys

if __name__ == "__main__":  # a process that a test spawns imports this module as another
    from tests.processes.collected import SET_BY_IMPORTS

    os.environ.update(SET_BY_IMPORTS)
    exec(sys.argv[-1], {"__name__": "__main__"})  # xdist's first line, as `python -c` would
