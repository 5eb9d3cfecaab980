"""A real Prometheus on loopback, and pods that count as our servers do: what it scrapes is what a test says."""

import json
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlencode
from urllib.request import urlopen

from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server

from serving.rewriter.metrics import Metrics
from tests.cluster.build.binaries import binary
from tests.cluster.plane.ports import free_port
from tests.cluster.servers import server
from tests.cluster.waiting import until

CONFIG = """
global: {scrape_interval: 500ms, scrape_timeout: 500ms}
scrape_configs:
- job_name: pods
  file_sd_configs: [{files: [targets.json], refresh_interval: 1s}]
"""
TARGETS = "targets.json"


class Server(NamedTuple):
    """Prometheus, and the file by which it finds its pods."""

    url: str
    targets: Path
    process: "subprocess.Popen[bytes]"

    def find(self, *pods: "Pod") -> None:
        """From now on it scrapes these, and no others; each has the labels that an operator would give it."""
        write_targets(self.targets, pods)

    def await_scrape(self, *pods: "Pod") -> None:
        """Until it has a scrape of each that was, from beginning to end, after this call."""
        begun = [(pod, pod.scrapes) for pod in pods]
        until(lambda: all(max(self.scraped(pod), default=0) >= scrapes + 2 for pod, scrapes in begun))

    def scraped(self, pod: "Pod") -> list[float]:
        """How often a pod said that it was; one for each way in which it is found."""
        query = f'scraped{{namespace="{pod.labels["namespace"]}",pod="{pod.labels["pod"]}"}}'
        with urlopen(f"{self.url}/api/v1/query?{urlencode({'query': query})}", timeout=120) as answer:
            return [float(sample["value"][1]) for sample in json.load(answer)["data"]["result"]]


class Pod:
    """A model server's /metrics, of one version, in one namespace."""

    def __init__(self, namespace: str, name: str, version: str) -> None:
        self.port, self.version = free_port(), version
        self.labels = {"namespace": namespace, "pod": name}
        self.scrapes = 0
        self.begin()

    def begin(self, started: float | None = None, served: int = 0) -> None:
        """A new process behind the same name: it has counted nothing, or so many requests before it is found."""
        self.registry = CollectorRegistry()
        self.metrics = Metrics(self.version, ["demo"], lambda: 0, self.registry)
        self.rag = Counter("qinglan_rag_requests", "-", ["tenant", "rewriter", "status"], registry=self.registry)
        self.empty = Counter("qinglan_rag_zero_hits", "-", ["tenant", "rewriter"], registry=self.registry)
        Gauge("process_start_time_seconds", "-", registry=self.registry).set(started or time.time())
        Gauge("scraped", "-", registry=self.registry).set_function(self._scraped)
        self.serve(served)
        self._server, self._thread = start_http_server(self.port, "127.0.0.1", self.registry)

    def end(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def serve(self, answered: int, failed: int = 0, slow: int = 0, costly: int = 0) -> None:
        """So many requests more."""
        for number in range(answered):
            self.metrics.ended("v1", "answered", 2.0 if number < slow else 0.02)
            self.metrics.answered("demo", (), 10, 100 if number < costly else 10)
            self.rag.labels("demo", self.version, "200").inc()
        for _ in range(failed):
            self.metrics.ended("v1", "failed", 0.02)

    def _scraped(self) -> float:
        self.scrapes += 1
        return float(self.scrapes)


@contextmanager
def prometheus(folder: Path) -> Iterator[Server]:
    write_configuration(folder)
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with server([str(binary("prometheus")), *command_line(folder, port)], folder, f"{url}/-/ready", {}) as process:
        yield Server(url, folder / TARGETS, process)


def write_configuration(folder: Path) -> None:
    """Configure a Prometheus that scrapes nobody yet."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "prometheus.yml").write_text(CONFIG)
    (folder / TARGETS).write_text("[]")


def write_targets(file: Path, pods: Iterable[Pod]) -> None:
    """Let the Prometheus with this file scrape these pods, and no others."""
    targets = [{"targets": [f"127.0.0.1:{pod.port}"], "labels": pod.labels} for pod in pods]
    beside = file.with_suffix(".new")
    beside.write_text(json.dumps(targets))
    beside.rename(file)


def command_line(folder: Path, port: int) -> list[str]:
    return [
        f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn",
        "--scrape.discovery-reload-interval=100ms",  # or pods that are found wait 5 s for their first scrape
    ]  # fmt: skip
