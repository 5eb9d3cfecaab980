"""What our server costs before a model, and what batching gains where the model is in the process.

    make bench-serving                                     both
    python -m benchmarks.serving --soak 30                 half an hour of load with faults: errors, memory growth

Overhead: a stub of vLLM answers after 50 ms. Requests go out by the clock, at half of what our server can do, whether
or not the ones before are answered: to the stub itself, through our transformer, through a bare FastAPI proxy.
"""

import argparse
import asyncio
import statistics
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import httpx
import orjson
from rich.console import Console
from rich.table import Table

from benchmarks.load import Load, measure
from benchmarks.report import report
from benchmarks.serving_soak import soak
from benchmarks.serving_world import alone, proxy, server, stub, taught

CLIENTS = (1, 8, 32)
SECONDS = 5.0
STUB_MS = 50
TIMES_DIRECT = 1.1
ASKED = {"query": "那它一天吃几次", "history_summary": "用户正在了解虾青素软胶囊", "tenant_id": "fivedoctors"}
V1, COMPLETIONS = "/v1/models/rewriter:predict", "/v1/completions"


class Way(NamedTuple):
    """Somebody to ask, and the process whose CPU is counted."""

    name: str
    url: str
    body: bytes
    pid: int


class Paced(NamedTuple):
    """What an open loop saw."""

    sent: int
    failed: int
    p50_ms: float
    p99_ms: float
    cpu_ms: float
    """Of the asked process, a request."""


async def pace(way: Way, per_second: float, seconds: float) -> Paced:
    """Requests by the clock."""
    import psutil

    process = psutil.Process(way.pid)
    limits = httpx.Limits(max_connections=1000, max_keepalive_connections=1000)
    times, failed = list[float](), 0
    async with httpx.AsyncClient(limits=limits, trust_env=False, timeout=30) as http:

        async def once(at: float) -> None:
            nonlocal failed
            answer = await http.post(way.url, content=way.body, headers={"content-type": "application/json"})
            times.append(time.perf_counter() - at)
            failed += answer.status_code != 200

        await asyncio.gather(*(once(time.perf_counter()) for _ in range(8)))  # connections
        times.clear()
        before, tasks, started = sum(process.cpu_times()[:2]), list[asyncio.Task[None]](), time.perf_counter()
        for number in range(int(per_second * seconds)):
            await asyncio.sleep(max(0.0, started + number / per_second - time.perf_counter()))
            tasks.append(asyncio.create_task(once(time.perf_counter())))
        await asyncio.gather(*tasks)
    cuts = statistics.quantiles(times, n=100)
    cpu = (sum(process.cpu_times()[:2]) - before) / len(times)
    return Paced(len(times), failed, *(round(one * 1000, 2) for one in (cuts[49], cuts[98], cpu)))


def overhead(folder: Path) -> tuple[dict[str, Paced], float]:
    """Each way at half of what our server can do before the stub."""
    model = taught(folder / "model")
    v1 = orjson.dumps({"instances": [ASKED]})
    completion = orjson.dumps({"model": "rewriter", "prompt": "x" * 120, "max_tokens": 64, "temperature": 0})
    with (
        stub(STUB_MS / 1000, folder) as (vllm, vllm_pid),
        server(model, folder, "--backend", vllm) as (ours, pid),
        proxy(vllm, folder) as (bare, bare_pid),
    ):
        (folder / "v1.jsonl").write_bytes(v1)
        saturated = measure(ours + V1, folder / "v1.jsonl", 64, SECONDS).requests_per_second
        ways = [
            Way("the stub itself", vllm + COMPLETIONS, completion, vllm_pid),
            Way("our transformer", ours + V1, v1, pid),
            Way("a bare FastAPI proxy", bare + COMPLETIONS, completion, bare_pid),
        ]
        return {way.name: asyncio.run(pace(way, saturated / 2, SECONDS * 2)) for way in ways}, saturated


def batching(folder: Path) -> dict[str, list[Load]]:
    """The model in the process: what waits is written together, against one by one."""
    model, bodies = taught(folder / "model"), folder / "v1.jsonl"
    bodies.write_bytes(orjson.dumps({"instances": [ASKED]}))
    found = dict[str, list[Load]]()
    for name, start in (("together", server), ("one by one", alone)):
        with start(model, folder) as (url, _):
            found[name] = [measure(url + V1, bodies, clients, SECONDS) for clients in CLIENTS]
    return found


def show(paced: dict[str, Paced], saturated: float, loads: dict[str, list[Load]]) -> None:
    console = Console(file=sys.stdout)
    rate = f"a {STUB_MS} ms backend, {saturated / 2:.0f} requests a second (half of what ours can do)"
    table = Table("", "p50 ms", "p99 ms", "CPU ms a request", "failed", title=rate)
    for name, one in paced.items():
        table.add_row(name, f"{one.p50_ms:.1f}", f"{one.p99_ms:.1f}", f"{one.cpu_ms:.2f}", str(one.failed))
    console.print(table)
    table = Table("", *(f"{clients} clients" for clients in CLIENTS), title="requests a second (p50 ms), on the CPU")
    for name, found in loads.items():
        table.add_row(name, *(f"{one.requests_per_second:,.0f} ({one.p50_ms:.1f})" for one in found))
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving")
    parser.add_argument("--soak", type=float, metavar="MINUTES")
    minutes = parser.parse_args().soak
    with TemporaryDirectory() as folder:
        if minutes:
            soak(taught(Path(folder) / "model"), Path(folder), minutes * 60)
            return
        paced, saturated = overhead(Path(folder))
        loads = batching(Path(folder))
    show(paced, saturated, loads)
    direct, ours, bare = paced.values()
    ratio = ours.p50_ms / direct.p50_ms
    together, single = loads.values()
    gains = [round(a.requests_per_second / b.requests_per_second, 2) for a, b in zip(together, single, strict=True)]
    report(
        "serving", ratio, TIMES_DIRECT, ratio <= TIMES_DIRECT and not ours.failed, per_second=saturated / 2,
        cpu_to_bare_proxy=round(ours.cpu_ms / bare.cpu_ms, 2), batching={str(one): gains.pop(0) for one in CLIENTS},
    )  # fmt: skip


if __name__ == "__main__":
    main()
