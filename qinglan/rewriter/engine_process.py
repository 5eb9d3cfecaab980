"""Run vLLM in a separate process that listens on loopback.

with run_engine(folder, engine_options("rewriter"), log, seconds) as engine:
    sync_client(engine.url, timeout=60).post(COMPLETIONS_PATH, json=completion_request("rewriter", prompt, 64))
"""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from qinglan.errors import OutageError
from qinglan.files.files import open_private
from qinglan.jobs.shared_memory import remove_abandoned_segments
from qinglan.processes.services import failure_lines, free_port, guarded_process
from qinglan.rewriter.engine import ENGINE_ENVIRONMENT, HEALTH_PATH

POLL_SECONDS = 0.5


class Engine(NamedTuple):
    """A running vLLM whose health check has succeeded."""

    url: str
    log: Path
    process: "subprocess.Popen[bytes]"

    def outage(self, what: str) -> OutageError:
        code = self.process.poll()
        ended = "" if code is None else f"; its process ended with {code}"
        return OutageError(*failure_lines(f"{what}{ended}", "vLLM", self.log))


@contextmanager
def run_engine(
    weights: Path,
    options: Sequence[str],
    log: Path,
    ready_seconds: float,
    python: str = sys.executable,
    port: int = 0,
    gpus: Sequence[str] = (),
) -> Iterator[Engine]:
    """Run `vllm serve` with the interpreter `python` during the block; the engine is ready when the block begins.

    Port 0 takes a free port. The engine sees only the GPUs in `gpus`, or all GPUs if the list is empty.
    """
    port = port or free_port()
    command = [python, "-m", "vllm.entrypoints.cli.main", "serve", str(weights.resolve()), *options]
    log.parent.mkdir(parents=True, exist_ok=True)
    cards = {"CUDA_VISIBLE_DEVICES": ",".join(gpus)} if gpus else {}
    # A killed vLLM leaves sockets in its temporary folder, and segments of shared memory. Both are removed here.
    with TemporaryDirectory(prefix="qinglan-") as scratch:
        started = Path(scratch).stat().st_mtime
        environment = {**os.environ, **ENGINE_ENVIRONMENT, **cards, "TMPDIR": scratch}
        command += ["--host=127.0.0.1", f"--port={port}"]
        try:
            with (
                open_private(log, "ab") as output,
                guarded_process(command, stdout=output, stderr=output, env=environment) as process,
            ):
                engine = Engine(f"http://127.0.0.1:{port}", log, process)
                _wait_until_healthy(engine, ready_seconds)
                yield engine
        finally:
            remove_abandoned_segments(started)


def _wait_until_healthy(engine: Engine, seconds: float) -> None:
    import httpx2

    from qinglan.http.http_client import sync_client

    deadline = time.monotonic() + seconds
    with sync_client(timeout=5) as http:
        while engine.process.poll() is None:
            with contextlib.suppress(httpx2.HTTPError):
                if http.get(engine.url + HEALTH_PATH).status_code == 200:
                    return
            if time.monotonic() > deadline:
                raise engine.outage(f"was not ready after {seconds:.0f} s")
            time.sleep(POLL_SECONDS)
    raise engine.outage("did not start")
