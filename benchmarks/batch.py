"""What batch mode costs a row: against live calls, and against a bare script. `make bench-batch`

The same rows three ways before a stand-in that answers at once: live through the gateway; by batch through the
gateway (queued, journaled, uploaded, polled, read, fetched); and a script that writes the file, uploads it, polls and
reads the answers, with no journal, no budget and no way back after a kill. The stand-in's own work is in all three.
"""

import argparse
import asyncio
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import openai
import orjson

from benchmarks.memory import largest_memory
from benchmarks.report import report
from benchmarks.standin import started
from qinglan.concurrency import map_in_order
from qinglan.llm.client import GatewayClient, PlannedRequest
from qinglan.llm.config import GatewayConfig
from qinglan.llm.journal_reader import read_report
from tests.echo import EchoBrain, GatewayProcess, gateway_config

TARGET_RATIO = 1.0
"""Batch against live: the half price must not be paid for in work a row."""

UNDER_WAY = 64
POLL_SECONDS, GATHER_SECONDS = 0.1, 1.0
FETCHED = 1_000
"""Rows that ask for their answers where only the gateway's memory is measured."""

FREE = {"requests_per_minute": 10**9, "tokens_per_minute": 10**12}


class Measured(NamedTuple):
    seconds: float
    ahead: float
    """Of those, until every answer was in the journal; then each row fetched its own."""

    gateway_mb: int
    cost: float


def main() -> None:
    if sys.argv[1:2] == ["teacher"]:
        serve_teacher()
        return
    if sys.argv[1:2] == ["bare"]:
        print(asyncio.run(bare(sys.argv[2], int(sys.argv[3]))))
        return
    parser = argparse.ArgumentParser(prog="python -m benchmarks.batch")
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--memory-rows", type=int, nargs="*", default=[1_000, 100_000])
    given = parser.parse_args()
    with started("benchmarks.batch", "teacher") as url:
        live = measure(gateway_config(url, limits=FREE, budget=10**6), given.rows)
        print(f"live: {live.seconds:.1f} s, gateway {live.gateway_mb} MB", flush=True)
        ours = measure(by_batch(url), given.rows)
        print(
            f"by batch: {ours.seconds:.1f} s, of which in batches {ours.ahead:.1f} s, gateway {ours.gateway_mb} MB",
            flush=True,
        )
        plain = measure_bare(url, given.rows)
        print(f"a bare script: {plain:.1f} s", flush=True)
    memory = {str(given.rows): ours.gateway_mb}
    for rows in given.memory_rows:
        with started("benchmarks.batch", "teacher") as url:
            found = measure(by_batch(url), rows, fetched=FETCHED)
            memory[str(rows)] = found.gateway_mb
            print(f"{rows:,} rows by batch: {found.ahead:.1f} s, gateway {found.gateway_mb} MB", flush=True)
    ratio = ours.seconds / live.seconds
    done = ratio <= TARGET_RATIO and abs(ours.cost / live.cost - 0.5) < 1e-6
    report(
        "batch", ratio, TARGET_RATIO, done,
        rows=given.rows, ms_per_row=per_row(ours.seconds, given.rows),
        ms_per_row_live=per_row(live.seconds, given.rows),
        ms_per_row_bare=per_row(plain, given.rows), ms_per_row_in_batches=per_row(ours.ahead, given.rows),
        overhead_ms_per_row=per_row(ours.ahead - plain, given.rows),
        cost_ratio=round(ours.cost / live.cost, 4), gateway_mb_live=live.gateway_mb, gateway_mb=memory,
        client_mb=largest_memory(),
    )  # fmt: skip


def per_row(seconds: float, rows: int) -> float:
    return round(seconds / rows * 1000, 3)


def by_batch(url: str) -> GatewayConfig:
    batch = {"gather_seconds": GATHER_SECONDS, "poll_seconds": POLL_SECONDS}
    return gateway_config(url, model={"batch": batch}, limits=FREE, budget=10**6)


def measure(config: GatewayConfig, rows: int, fetched: int = 0) -> Measured:
    with tempfile.TemporaryDirectory() as folder:
        gateway = GatewayProcess(config, Path(folder))
        try:
            seconds, ahead = asyncio.run(ask_all(gateway.url(), rows, fetched or rows))
            used = largest_memory(gateway.process.pid)
        finally:
            gateway.stop()
        return Measured(seconds, ahead, used, read_report(Path(folder) / "journal.sqlite")["cost"])


async def ask_all(url: str, rows: int, fetched: int) -> tuple[float, float]:
    """As a stage asks: announced where that helps, then row by row with a window of them in memory."""
    started = time.perf_counter()
    async with GatewayClient(url, "generate") as client:
        await client.ahead(lambda: (PlannedRequest("teacher", str(n), messages(n)) for n in range(rows)))
        ahead = time.perf_counter() - started

        async def ask(n: int) -> str:
            return (await client.ask("teacher", messages(n), row=str(n))).text

        expected = 0
        async for text in map_in_order(range(fetched), ask, UNDER_WAY):
            assert text == f"回声 问题 {expected}", text
            expected += 1
    assert expected == fetched
    return time.perf_counter() - started, ahead


def messages(n: int) -> list[Any]:
    return [{"role": "system", "content": "改写这个查询。" * 20}, {"role": "user", "content": f"问题 {n}"}]


def measure_bare(url: str, rows: int) -> float:
    command = [sys.executable, "-m", "benchmarks.batch", "bare", url, str(rows)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


async def bare(url: str, rows: int) -> float:
    """Everything in memory, as a script does it."""
    started = time.perf_counter()
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none") as client:
        lines = [
            orjson.dumps({
                "custom_id": str(n), "method": "POST", "url": "/v1/chat/completions",
                "body": {"model": "echo", "messages": messages(n), "temperature": 0.3, "max_completion_tokens": 100},
            })
            for n in range(rows)
        ]  # fmt: skip
        file = await client.files.create(file=("in.jsonl", b"\n".join(lines)), purpose="batch")
        batch = await client.batches.create(
            input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"
        )
        while batch.status != "completed":
            await asyncio.sleep(POLL_SECONDS)
            batch = await client.batches.retrieve(batch.id)
        content = (await client.files.content(str(batch.output_file_id))).content
    answers = [orjson.loads(line) for line in content.splitlines()]
    found = {line["custom_id"]: line["response"]["body"]["choices"][0]["message"]["content"] for line in answers}
    assert all(found[str(n)] == f"回声 问题 {n}" for n in range(rows))
    return time.perf_counter() - started


def serve_teacher() -> None:
    """The stand-in's protocol over a brain that repeats what it hears, in a process of its own."""
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
