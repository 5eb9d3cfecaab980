"""Run commands of `qinglan` one after the other in one process; the first argument has their words, as JSON."""

import contextlib
import json
import sys

from commands.cli import main

if __name__ == "__main__":
    for words in json.loads(sys.argv[1]):
        sys.argv = ["qinglan", *words]
        with contextlib.suppress(SystemExit):
            main()
