"""The table of faults: small changes of the product's code, each of which breaks a promise that some test must hold.

for fault in read_faults(FOLDER):
    print(fault.name, fault.promise)
"""

import ast
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]
FIELDS = frozenset({"name", "file", "find", "replace", "promise", "tests"})


class Fault(NamedTuple):
    """A change of one file, and the tests of which at least one must fail with it."""

    name: str
    """By field first, so that `journal-*` chooses a field."""

    file: str
    """From the repository's root."""

    find: str
    """A text that is in the file exactly once."""

    replace: str
    promise: str
    """Promise that the fault breaks, in one sentence."""

    tests: tuple[str, ...]
    """Test files, or single tests as path::function."""

    def apply(self, source: str) -> str:
        """The source with the fault in it."""
        return source.replace(self.find, self.replace)


def read_faults(folder: Path) -> list[Fault]:
    """All faults of the folder's TOML files, in the order of files and entries."""
    tables = (tomllib.loads(path.read_text("utf-8")) for path in sorted(folder.glob("*.toml")))
    return [_read(entry) for table in tables for entry in table["fault"]]


def _read(entry: dict[str, Any]) -> Fault:
    if entry.keys() != FIELDS:
        raise ValueError(f"{entry.get('name')}: fields {sorted(entry.keys() ^ FIELDS)} are missing or unknown.")
    return Fault(**{**entry, "tests": tuple(entry["tests"])})


def problems(faults: Iterable[Fault], root: Path) -> Iterator[str]:
    """Everything that makes an entry of the table useless, a sentence each."""
    faults = list(faults)
    for name, times in Counter(fault.name for fault in faults).items():
        if times > 1:
            yield f"{name}: {times} faults have this name."
    for fault in faults:
        if problem := misfit(fault, root):
            yield problem
        for test in fault.tests:
            if not test_exists(test, root):
                yield f"{fault.name}: there is no test {test}."
        if not fault.tests:
            yield f"{fault.name}: it names no test."


def misfit(fault: Fault, root: Path) -> str:
    """Why the fault cannot be put into its file; "" where it can."""
    path = root / fault.file
    if not path.is_file():
        return f"{fault.name}: there is no file {fault.file}. Name the file that holds that code now."
    times = path.read_text("utf-8").count(fault.find)
    if times != 1:
        return (
            f"{fault.name}: its `find` occurs {times} times in {fault.file}, and must occur once. "
            "Copy the line as the file has it now."
        )
    if fault.find == fault.replace:
        return f"{fault.name}: `find` and `replace` are the same."
    return ""


def test_exists(test: str, root: Path) -> bool:
    """Tell if a file, or a function of it, exists."""
    name, _, function = test.partition("::")
    path = root / name
    if not path.is_file():
        return False
    return not function or function in _functions(path)


def _functions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text("utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
