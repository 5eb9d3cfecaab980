"""Imports of collecting the tests, package by package, by the interpreter's own count (-X importtime)."""

import subprocess
import sys
from collections import Counter
from collections.abc import Iterable

COLLECT = ["-X", "importtime", "-m", "pytest", "--collect-only", "-q", "-s"]


def imported(options: list[str]) -> Counter[str]:
    """Seconds that importing each top-level package takes while tests are collected; counting makes it dearer."""
    run = subprocess.run([sys.executable, *COLLECT, *options], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    return by_package(run.stderr.decode("utf-8", "replace").splitlines())


def by_package(lines: Iterable[str]) -> Counter[str]:
    """Sum up lines such as `import time:       123 |        456 |   numpy.linalg`: own microseconds, all, name."""
    seconds: Counter[str] = Counter()
    for line in lines:
        head, _, rest = line.partition("import time:")
        fields = rest.split("|")
        if not head and len(fields) == 3 and fields[0].strip().isdigit():
            seconds[fields[2].strip().partition(".")[0]] += int(fields[0]) / 1e6  # type: ignore[assignment]
    return seconds
