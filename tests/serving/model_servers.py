"""Model servers in processes of their own, on loopback."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import orjson

from tests.processes.forkserver import forked

V1, V2, CHAT = "/v1/models/rewriter:predict", "/v2/models/rewriter/infer", "/openai/v1/chat/completions"
REQUEST = {"query": "一天吃几次", "history_summary": "用户正在了解虾青素软胶囊", "tenant_id": "fivedoctors"}


class Served(NamedTuple):
    http: httpx.Client
    folder: Path
    process: "subprocess.Popen[bytes]"
    log: Path

    def counted(self, name: str, **labels: str) -> float:
        """The sum of the samples of /metrics that have these labels."""
        expected = [f'{label}="{value}"' for label, value in labels.items()]
        lines = self.http.get("/metrics").text.splitlines()
        samples = [line for line in lines if line.startswith((f"{name}{{", f"{name} "))]
        return sum(float(line.split()[-1]) for line in samples if all(label in line for label in expected))

    def ask(self, **changes: Any) -> dict[str, Any]:
        """The rewriter's prediction for one question by V1."""
        answer = self.http.post(V1, json={"instances": [REQUEST | changes]})
        assert answer.status_code == 200, answer.text
        result: dict[str, Any] = answer.json()["predictions"][0]
        return result

    def lines(self) -> list[dict[str, Any]]:
        """The JSON lines of the log."""
        return [orjson.loads(line) for line in self.log.read_bytes().splitlines() if line.startswith(b"{")]


Serve = Callable[..., AbstractContextManager[Served]]


def running(log: Path, *module: str) -> AbstractContextManager[tuple["subprocess.Popen[bytes]", str]]:
    """A module with its arguments, run as a program of its own."""
    return announced(log, [sys.executable, "-m", *module])


@contextmanager
def announced(log: Path, command: list[str]) -> Iterator[tuple["subprocess.Popen[bytes]", str]]:
    """A program that prints its address on its first line."""
    with log.open("wb") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line, log.read_text()
        yield process, next(iter(orjson.loads(line).values()))
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def server_of(module: str, folder: Path, logs: Path) -> Serve:
    """A function that starts a server of this model with further options."""

    @contextmanager
    def started(*options: str, model: Path = folder) -> Iterator[Served]:
        log = logs / f"{time.monotonic_ns()}.log"
        command = forked(module, "--model", str(model), "--port", "0", *options)
        with (
            announced(log, command) as (process, url),
            httpx.Client(base_url=url, trust_env=False, timeout=60) as http,
        ):
            yield Served(http, model, process, log)

    return started


def until(holds: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "never came true"
        time.sleep(0.02)
