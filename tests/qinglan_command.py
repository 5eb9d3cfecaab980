"""The command `qinglan` in a fork: `tests/run_forks/sitecustomize.py` replaces its Python by this module."""

import sys

from pipelines.cli import main

if __name__ == "__main__":
    sys.argv[0] = "-c"
    main()
