"""The processes that the serving benchmark asks: our server, by itself or before a vLLM."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson

from qinglan.services import end_with_parent


@contextmanager
def started(log: Path, *command: str) -> Iterator[str]:
    """The address that a program says on its first line."""
    with log.open("ab") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", *command], stdout=subprocess.PIPE, stderr=errors, preexec_fn=end_with_parent
        )
    assert process.stdout is not None
    try:
        yield str(next(iter(orjson.loads(process.stdout.readline()).values())))
    finally:
        process.terminate()
        process.wait(30)
        process.stdout.close()


@contextmanager
def server(model: Path, log: Path, *options: str) -> Iterator[str]:
    """Ours, ready."""
    import httpx

    with started(log, "serving.rewriter", "--model", str(model), "--port", "0", *options) as url:
        while httpx.get(f"{url}/v2/health/ready", trust_env=False).status_code != 200:
            time.sleep(0.1)
        yield url
