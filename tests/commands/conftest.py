"""The command in this process; a stand-in of KFP, and a small graph to send there."""

import signal
import sys
from collections.abc import Callable, Iterator
from functools import cache
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import typer
from kfp.dsl import pipeline_task
from typer.main import get_command

from commands.cli import main
from pipelines.checks.cluster.graph import Graph, read_graph
from qinglan.messages import reads_chinese
from tests.kfp.graphs import compile_graph
from tests.kfp.stand_in import StandIn, serving


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return read_graph(compile_graph(tmp_path_factory.mktemp("graph") / "small.yaml"))


@pytest.fixture
def server() -> Iterator[StandIn]:
    with serving(StandIn()) as running:
        yield running


@pytest.fixture(scope="session", autouse=True)
def stack_without_source_lines() -> Iterator[None]:
    """Give KFP its caller's name alone.

    At each setting of a task it asks for the whole stack. In a worker some frames belong to no file, and Python looks
    for each of those through all modules that are imported: most of a compilation's time.
    """

    def stack() -> list[tuple[None, None, None, str]]:
        frame_item = sys._getframe(1)
        return [(None, None, None, frame.f_code.co_name) for frame in (frame_item, frame_item.f_back) if frame]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline_task, "inspect", SimpleNamespace(stack=stack))
        yield


english_command = cache(get_command)


def command_of(app: typer.Typer) -> Any:
    """The command line, which typer builds from 50 signatures; in Chinese it is translated where it is."""
    return get_command(app) if reads_chinese() else english_command(app)


class Ended(NamedTuple):
    """A command that has ended."""

    code: int
    out: str
    errors: str


Here = Callable[..., Ended]


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Here]:
    """Run `qinglan` with these words in this process, which has imported what it needs."""
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(typer.main, "get_command", command_of)

    def run(*words: object) -> Ended:
        monkeypatch.setattr(sys, "argv", ["qinglan", *map(str, words)])
        with pytest.raises(SystemExit) as end:
            main()
        return Ended(int(end.value.code or 0), *capsys.readouterr())

    yield run
    signal.signal(signal.SIGTERM, before)
