"""The style service in a process of its own, over a tiny model, and what it says on stderr."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from qinglan.files.digests import digest
from tests.models.tiny_style import tiny_style_model
from tests.processes.forkserver import forked
from tests.serving.rewriter.conftest import announced


class Served(NamedTuple):
    http: httpx.Client
    folder: Path
    process: "subprocess.Popen[bytes]"
    log: Path

    def requests(self, protocol: str, outcome: str) -> float:
        version = digest(self.folder)[:12]
        labels = f'outcome="{outcome}",protocol="{protocol}",version="{version}"'
        return self.counted(f"qinglan_style_requests_total{{{labels}}}")

    def counted(self, sample: str) -> float:
        """A sample of /metrics by its name and labels, as Prometheus writes them; 0 where it is not there yet."""
        lines = self.http.get("/metrics").text.splitlines()
        return next((float(line.split()[-1]) for line in lines if line.startswith(f"{sample} ")), 0.0)


Serve = Callable[..., AbstractContextManager[Served]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_style_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def serve(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Serve:
    """Starts a service with these options."""

    @contextmanager
    def started(*options: str) -> Iterator[Served]:
        log = tmp_path_factory.mktemp("log") / "style.log"
        command = forked("serving.style", "--model", str(folder), "--port", "0", *options)
        with (
            announced(log, command) as (process, url),
            httpx.Client(base_url=url, trust_env=False, timeout=60) as http,
        ):
            yield Served(http, folder, process, log)

    return started


@pytest.fixture(scope="module")
def served(serve: Serve) -> Iterator[Served]:
    with serve() as running:
        yield running
