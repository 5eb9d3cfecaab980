"""One text a request: our service against the plan's bare FastAPI app, both around the same model."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import orjson
from rich.table import Table

from benchmarks.load import Load, measure
from benchmarks.standin import started
from benchmarks.style.plan import LONGEST, WIDEST
from qinglan.processes.services import run_service

CLIENTS = (1, 8, 32)
SECONDS = 4.0
PLAIN, V1 = "/predict", "/v1/models/style:predict"


class Query(NamedTuple):
    """A way to ask, and the file of its bodies."""

    name: str
    url: str
    bodies: Path


def load(model: Path, texts: Sequence[str], folder: Path) -> dict[str, list[Load]]:
    """Each number of clients asks one service after the other, so that what else the machine does meets them all."""
    plain = _write(folder / "plain.jsonl", [{"text": text} for text in texts])
    v1 = _write(folder / "v1.jsonl", [{"instances": [{"text": text}]} for text in texts])
    with services(model, folder) as (product, dynamic, padded):
        ways = (
            Query("ours, KServe V1", product + V1, v1),
            Query("ours, /predict", product + PLAIN, plain),
            Query("FastAPI, no padding", dynamic + PLAIN, plain),
            Query("FastAPI, padded to 512", padded + PLAIN, plain),
        )
        by_service: dict[str, list[Load]] = {service.name: [] for service in ways}
        for clients in CLIENTS:
            for service in ways:
                by_service[service.name].append(measure(service.url, service.bodies, clients, SECONDS))
    return by_service


@contextmanager
def services(model: Path, folder: Path) -> Iterator[tuple[str, str, str]]:
    """Ours, and the plan's twice; whoever is not asked only waits."""
    with ExitStack() as stack:
        product = stack.enter_context(
            run_service("serving.style", ["--model", str(model), "--port", "0"], folder / "service.log")
        )
        dynamic, padded = (
            stack.enter_context(started("benchmarks.style.plan", str(model), padding))
            for padding in (LONGEST, WIDEST)
        )
        yield product, dynamic, padded


def _write(path: Path, bodies: Sequence[object]) -> Path:
    path.write_bytes(b"\n".join(map(orjson.dumps, bodies)))
    return path


def table(by_service: dict[str, list[Load]]) -> Table:
    out = Table("", *(f"{clients} clients" for clients in CLIENTS), title="requests a second (p50, p99 ms)")
    for name, loads in by_service.items():
        out.add_row(
            name,
            *(
                f"{figures.requests_per_second:,.0f} ({figures.p50_ms:.1f}, {figures.p99_ms:.1f})"
                for figures in loads
            ),
        )
    return out
