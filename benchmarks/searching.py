"""One search engine in a process of its own, so that its memory is its own and its time is not our interpreter's.

python -m benchmarks.searching load ENGINE KB FOLDER    a line of JSON: seconds, CPU seconds, largest memory in MB
python -m benchmarks.searching serve ENGINE FOLDER      queries on stdin, a line of JSON each; answers on stdout
"""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import orjson

from benchmarks.memory import largest_memory
from benchmarks.search_engines import CONTENDERS


class Loading(NamedTuple):
    seconds: float
    cpu_seconds: float
    """CPU seconds of its process; where others work on the machine too, it tells more than the clock."""

    megabytes: int


class Reply(NamedTuple):
    """One answer of an engine."""

    seconds: float
    first: str
    """The id of its first passage."""

    megabytes: int


class Serving:
    """An engine that is open in another process."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process
        self.can_answer = bool(orjson.loads(self._line()))

    def ask(self, operation: str, query: str) -> Reply:
        assert self._process.stdin is not None
        self._process.stdin.write(orjson.dumps([operation, query]) + b"\n")
        self._process.stdin.flush()
        return Reply(*orjson.loads(self._line()))

    def _line(self) -> bytes:
        assert self._process.stdout is not None
        return self._process.stdout.readline()


def load(engine: str, kb: Path, folder: Path) -> Loading:
    """Into the folder, by a process that ends; what it says of itself goes to our log."""
    folder.mkdir(parents=True)
    command = [sys.executable, "-m", "benchmarks.searching", "load", engine, str(kb), str(folder)]
    run = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    return Loading(*orjson.loads(run.stdout.splitlines()[-1]))


@contextmanager
def serving(engine: str, folder: Path) -> Iterator[Serving]:
    command = [sys.executable, "-m", "benchmarks.searching", "serve", engine, str(folder)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        yield Serving(process)
    finally:
        process.terminate()
        process.wait()


def _load(engine: str, kb: Path, folder: Path) -> None:
    started = time.monotonic()
    CONTENDERS[engine].load(kb, folder)
    _say([time.monotonic() - started, time.process_time(), largest_memory()])


def _serve(engine: str, folder: Path) -> None:
    opened = CONTENDERS[engine].open(folder)
    _say(opened.answer is not None)
    for line in sys.stdin.buffer:
        operation, query = orjson.loads(line)
        ask = opened.search if operation == "search" else opened.answer
        assert ask is not None
        started = time.perf_counter()
        first = ask(query)
        _say([time.perf_counter() - started, first, largest_memory()])


def _say(what: object) -> None:
    sys.stdout.buffer.write(orjson.dumps(what) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    step, name, *paths = sys.argv[1:]
    (_load if step == "load" else _serve)(name, *map(Path, paths))
