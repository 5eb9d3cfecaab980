"""The command `qinglan` in a fork: `tests/run_forks/sitecustomize.py` replaces its Python by this module."""

import os
import sys
import warnings

from commands.cli import main

if __name__ == "__main__":
    sys.argv[0] = "-c"
    if "PYTHONWARNINGS" in os.environ:  # read at a Python's start alone
        warnings.simplefilter(os.environ["PYTHONWARNINGS"])  # type: ignore[arg-type]
    main()
