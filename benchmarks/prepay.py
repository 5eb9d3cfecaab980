"""Cost of a prepaid row beside a live one, in money and in work, and the memory that it takes. `make bench-prepay`

The same rows before a stand-in that answers at once: live through the gateway; prepaid (journaled, uploaded, polled,
read) and then asked through the gateway, which pays nothing any more. The stand-in's own work is in both.
"""

import argparse
import asyncio
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.memory import largest_memory
from benchmarks.report import report
from benchmarks.standin import started
from commands.prepay.prepay import prepay
from qinglan.concurrency import map_in_order
from qinglan.llm.call_plan import PaidRequest
from qinglan.llm.client import GatewayClient
from qinglan.llm.config import GatewayConfig
from qinglan.llm.paid.journal import Entry
from qinglan.llm.paid.journal_reader import read_report
from tests.servers.echo_servers import EchoBrain, GatewayProcess, gateway_config

TARGET_RATIO = 1.0
"""Prepaying against live calls: the half price must not be paid for in work a row."""

UNDER_WAY = 64
FREE = {"requests_per_minute": 10**9, "tokens_per_minute": 10**12}


def main() -> None:
    if sys.argv[1:2] == ["teacher"]:
        serve_teacher()
        return
    parser = argparse.ArgumentParser(prog="python -m benchmarks.prepay")
    parser.add_argument("--rows", type=int, default=10_000)
    rows = parser.parse_args().rows
    with started("benchmarks.prepay", "teacher") as url, tempfile.TemporaryDirectory() as folder:
        config = gateway_config(url, limits=FREE, budget=10**6)
        live, ahead = Path(folder) / "live", Path(folder) / "ahead"
        live_seconds = ask_all(config, live, rows)
        prepaid_seconds = pay_ahead(config, ahead, rows)
        memory = largest_memory()
        fetched_seconds = ask_all(config, ahead, rows)
        costs = [read_report(path / "journal.sqlite")["cost"] for path in (ahead, live)]
    ratio, cost_ratio = prepaid_seconds / live_seconds, costs[0] / costs[1]
    report(
        "prepay", ratio, TARGET_RATIO, ratio <= TARGET_RATIO and abs(cost_ratio - 0.5) < 1e-6, rows=rows,
        ms_per_row=per_row(prepaid_seconds, rows), ms_per_row_live=per_row(live_seconds, rows),
        ms_per_row_fetched=per_row(fetched_seconds, rows), cost_ratio=round(cost_ratio, 4), prepay_mb=memory,
    )  # fmt: skip


def per_row(seconds: float, rows: int) -> float:
    return round(seconds / rows * 1000, 3)


def pay_ahead(config: GatewayConfig, folder: Path, rows: int) -> float:
    begun = time.perf_counter()
    paid = asyncio.run(prepay(requests(rows), config, folder / "journal.sqlite", lambda _: True))
    assert paid is not None
    assert paid.answered == rows
    return time.perf_counter() - begun


def requests(rows: int) -> Iterator[PaidRequest]:
    return (PaidRequest(Entry("generate", str(n), "teacher"), messages(n)) for n in range(rows))


def ask_all(config: GatewayConfig, folder: Path, rows: int) -> float:
    """Ask as a stage does: row by row, with a window of them in memory."""
    folder.mkdir(exist_ok=True)
    gateway = GatewayProcess(config, folder)
    try:
        return asyncio.run(_ask_all(gateway.url(), rows))
    finally:
        gateway.stop()


async def _ask_all(url: str, rows: int) -> float:
    begun = time.perf_counter()
    async with GatewayClient(url, "generate") as client:

        async def ask(n: int) -> str:
            return (await client.ask("teacher", messages(n), row=str(n))).text

        expected = 0
        async for text in map_in_order(range(rows), ask, UNDER_WAY):
            assert text == f"回声 问题 {expected}", text
            expected += 1
    return time.perf_counter() - begun


def messages(n: int) -> list[Any]:
    return [{"role": "system", "content": "改写这个查询。" * 20}, {"role": "user", "content": f"问题 {n}"}]


def serve_teacher() -> None:
    """Serve the stand-in's protocol with answers that repeat the question, in a process of its own."""
    import uvicorn

    from standins.teacher.app import create_app
    from standins.teacher.config import Behaviour

    listening = socket.create_server(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
    config = uvicorn.Config(
        create_app(EchoBrain(), Behaviour()), log_level="warning", lifespan="off", access_log=False
    )
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main()
