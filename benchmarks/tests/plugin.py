"""A pytest plugin that notes what each test, fixture and collected file takes, in seconds and CPU seconds.

QINGLAN_TEST_TIMES=FOLDER python -m pytest -p benchmarks.tests.plugin ...     writes FOLDER/<process id>.json

Under xdist each worker hands its notes to the process that distributes the tests, which writes them all.
"""

import json
import os
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

VARIABLE = "QINGLAN_TEST_TIMES"
Note = list[Any]
"""Kind (setup, call, teardown, fixture, file), name, seconds, CPU seconds."""


def cpu_seconds() -> float:
    """CPU time of this process and of those of its children that have ended and were waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


class Times:
    """Notes of one process."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._began = time.perf_counter()
        self._start = cpu_seconds()
        """Spent before pytest was configured: the interpreter, pytest and its plugins."""

        self._collection = self._tests_from = 0.0
        self._notes: list[Note] = []
        self._workers: list[dict[str, Any]] = []

    @contextmanager
    def _noted(self, kind: str, name: str) -> Iterator[None]:
        began, cpu = time.perf_counter(), cpu_seconds()
        try:
            yield
        finally:
            self._notes.append([kind, name, time.perf_counter() - began, cpu_seconds() - cpu])

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self) -> Generator[None, object, object]:
        before = cpu_seconds()
        try:
            return (yield)
        finally:
            self._tests_from = cpu_seconds()
            self._collection = self._tests_from - before

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Generator[None, Any, Any]:
        if not isinstance(collector, pytest.Module):
            return (yield)
        with self._noted("file", collector.nodeid):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, object, object]:
        with self._noted("setup", item.nodeid):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        with self._noted("call", item.nodeid):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, object, object]:
        with self._noted("teardown", item.nodeid):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
        with self._noted("fixture", f"{fixturedef.baseid}::{fixturedef.argname} ({fixturedef.scope})"):
            return (yield)

    def pytest_sessionfinish(self) -> None:
        own_time = {
            "start": self._start,
            "collection": self._collection,
            "tests": cpu_seconds() - self._tests_from,
            "seconds": time.perf_counter() - self._began,
            "notes": self._notes,
        }
        output = getattr(self._config, "workeroutput", None)
        if output is not None:
            output["times"] = own_time
        else:
            path = Path(os.environ[VARIABLE]) / f"{os.getpid()}.json"
            path.write_text(json.dumps({"processes": [own_time, *self._workers]}))

    def worker_done(self, times: dict[str, Any]) -> None:
        self._workers.append(times)


class Workers:
    """Takes what xdist's workers hand over when they end."""

    def __init__(self, times: Times) -> None:
        self._times = times

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        if "times" in getattr(node, "workeroutput", {}):
            self._times.worker_done(node.workeroutput["times"])


def pytest_configure(config: pytest.Config) -> None:
    inside_a_test = "PYTEST_CURRENT_TEST" in os.environ  # its time is that test's
    if os.environ.get(VARIABLE) and not inside_a_test:
        times = Times(config)
        config.pluginmanager.register(times)
        config.pluginmanager.register(Workers(times))
