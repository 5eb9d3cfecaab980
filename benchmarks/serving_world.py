"""Our rewriter's server, by itself or before a vLLM, as the serving benchmark runs it."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from qinglan.errors import OutageError
from qinglan.processes.services import READY_SECONDS, failure_lines, run_service


@contextmanager
def server(model: Path, log: Path, *options: str) -> Iterator[str]:
    """The address of a server that is ready."""
    import httpx

    with run_service("serving.rewriter", ["--model", str(model), "--port", "0", *options], log) as url:
        until = time.monotonic() + READY_SECONDS
        while httpx.get(f"{url}/v2/health/ready", trust_env=False).status_code != 200:
            if time.monotonic() > until:
                raise OutageError(*failure_lines(f"was not ready after {READY_SECONDS:.0f} s", "rewriter", log))
            time.sleep(0.1)
        yield url
