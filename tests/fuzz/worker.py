"""One parser under libFuzzer, led by the lines that its inputs reach.

python -m tests.fuzz.worker PARSER FOLDER [libFuzzer's options]

The folder holds `corpus/`, each input that reached something new, and `faults/`, inputs that broke the parser; both
are tried first, so that another search goes on where the last one ended.
"""

import contextlib
import hashlib
import importlib
import os
import sys
import traceback
from pathlib import Path
from random import Random
from typing import Any

import atheris

from tests.fuzz.mutation import LARGEST, WORDS, mutated
from tests.fuzz.target import Target, fault_of, smallest

PACKAGES = [
    "qinglan",
    "components",
    "pipelines",
    "commands",
    "serving",
    "tests",
    "yaml",
    "jinja2",
    "openpyxl",
    "pypdf",
    "mammoth",
    "bs4",
]
"""Packages whose lines lead the search: ours, and the parsers below them that are Python."""

BROKEN = 1
"""The exit status after a fault."""


def main() -> None:
    name, folder, *options = sys.argv[1:]
    with atheris.instrument_imports(include=PACKAGES):
        target: Target = importlib.import_module("tests.fuzz.targets").targets()[name]
        for seed in target.seeds:
            with contextlib.suppress(*target.refuses):
                target.parse(seed)  # so that what a parser imports only when it is called is instrumented too
    root = Path(folder)
    for kind in ("seeds", "corpus", "faults"):
        (root / kind).mkdir(parents=True, exist_ok=True)
    for seed in target.seeds:
        (root / "seeds" / digest(seed)).write_bytes(seed)
    (root / "words").write_text("".join(f'"{escaped(word)}"\n' for word in WORDS), encoding="ascii")
    arguments = [f"-max_len={LARGEST}", f"-dict={root / 'words'}", f"-artifact_prefix={root / 'faults'}/", *options]
    atheris.Setup(
        [sys.argv[0], *arguments, *(str(root / kind) for kind in ("corpus", "seeds", "faults"))],
        lambda content: try_input(target, content, root / "faults"),
        custom_mutator=lambda data, size, seed: changed(target, data, size, seed),
    )
    atheris.Fuzz()


def try_input(target: Target, content: bytes, faults: Path) -> None:
    """Parse it; after a fault the smallest input with the same one is written and printed, and the search ends."""
    fault: Any = fault_of(target, content)
    if fault is None:
        return
    content = smallest(content, lambda shorter: type(fault_of(target, shorter)) is type(fault))
    path = faults / digest(content)
    path.write_bytes(content)
    fault = fault_of(target, content) or fault
    print(f"Test unit written to {path}\n{''.join(traceback.format_exception(fault))}", flush=True)
    os._exit(BROKEN)


def changed(target: Target, data: bytes, size: int, seed: int) -> bytes:
    """Half of the time as libFuzzer changes bytes, by its words and comparisons; else by what breaks parsers."""
    random = Random(seed)
    if random.random() < 0.5:
        return bytes(atheris.Mutate(data, size))
    return mutated(random, data, target.seeds)[:size]


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def escaped(word: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in word)


if __name__ == "__main__":
    main()
