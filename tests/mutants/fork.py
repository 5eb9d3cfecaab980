"""Tests run in a forked child: heavy libraries are imported once, our modules and the tests anew in each child.

result = run_tests(copy, ["tests/qinglan/llm/test_budget.py"], copy.parent / "log.txt", seconds=60)
"""

import contextlib
import importlib
import importlib.util
import json
import os
import select
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

PACKAGES = frozenset(
    {"qinglan", "components", "serving", "standins", "pipelines", "commands", "images", "benchmarks", "tests"}
)
LIBRARIES = (
    "numpy", "scipy.stats", "pandas", "pyarrow.parquet", "openpyxl", "pydantic", "orjson", "yaml", "jinja2", "rich",
    "httpx", "httpx2", "httpcore2", "openai", "stamina", "aiolimiter", "fastapi", "fastapi.testclient", "uvicorn",
    "prometheus_client", "cryptography.hazmat.primitives.asymmetric.ec", "hypothesis.strategies",
)  # fmt: skip
"""Modules that most tests import, which takes seconds: a child starts with all of them."""


class Result(NamedTuple):
    """How a run of tests ended."""

    code: int
    """pytest's exit code; -1 where the run did not end in time."""

    failed: str
    """The first test that failed, "" for none."""

    seconds: float


class FirstFailure:
    """A pytest plugin that notes the first test that fails."""

    def __init__(self) -> None:
        self.test = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.test:
            self.test = report.nodeid + (f" ({report.when})" if report.when != "call" else "")


def import_libraries() -> None:
    """Import what children share."""
    for name in LIBRARIES:
        importlib.import_module(name)


def run_tests(root: Path, tests: Sequence[str], log: Path, seconds: float, write_bytecode: bool) -> Result:
    """Run the tests of a copy of the repository until the first failure."""
    began = time.monotonic()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _run_in_child(root, tests, log, writing, write_bytecode)
    os.close(writing)
    report = _read_until_end(reading, began + seconds)
    _end_group(child)
    code, failed = json.loads(report) if report else (-1, "")
    return Result(code, failed, time.monotonic() - began)


def _run_in_child(root: Path, tests: Sequence[str], log: Path, writing: int, write_bytecode: bool) -> None:
    """Run pytest in this process and end it: nothing of the parent's Python is unwound."""
    code, first = 70, FirstFailure()
    try:
        os.setsid()
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        _use_copy(root, write_bytecode)
        temporary = root.parent / "tmp"
        options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", f"--basetemp={temporary}"]
        # The same examples each time, or a fault would be caught today and not tomorrow.
        options += ["--hypothesis-seed=0", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
        code = int(pytest.main([*options, *tests], plugins=[first]))
        os.write(writing, json.dumps([code, first.test]).encode())
    finally:
        sys.stdout.flush()
        os._exit(0)


def _use_copy(root: Path, write_bytecode: bool) -> None:
    """Make the copy the only place that our modules come from, in this process and in those that it starts."""
    os.chdir(root)
    for name in [name for name in sys.modules if name.partition(".")[0] in PACKAGES]:
        del sys.modules[name]
    sys.path[:] = [str(root), *(path for path in sys.path if path and not (Path(path) / "qinglan").is_dir())]
    os.environ["PYTHONPATH"] = str(root)
    sys.dont_write_bytecode = not write_bytecode
    if not write_bytecode:
        # A fault may be as long as what it replaces: bytecode of one second would pass for that of the next.
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    importlib.invalidate_caches()
    result = importlib.util.find_spec("qinglan")
    assert result is not None and result.origin is not None
    assert Path(result.origin).is_relative_to(root), result.origin


def _read_until_end(reading: int, until: float) -> bytes:
    """All that the child writes until it closes the pipe; nothing where it is late."""
    content = b""
    with os.fdopen(reading, "rb", buffering=0) as pipe:
        while select.select([pipe], [], [], max(0.0, until - time.monotonic()))[0]:
            chunk = pipe.read(1 << 16)
            if not chunk:
                return content
            content += chunk
    return b""


def _end_group(child: int) -> None:
    """End the child and what it left in its group."""
    with contextlib.suppress(ProcessLookupError):  # it ended by itself, and left nobody
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
