"""Load with everything that goes wrong at once, for as long as one likes: who got an error, and does memory grow?

Clients ask without a pause, and elsewhere when a connection is refused, as behind a Service. Meanwhile one of the two
servers is told to stop and replaced every while; others send a body by drops, open a connection and say nothing, send
too much, or hang up before the answer.
"""

import asyncio
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import httpx
import orjson
import psutil

from benchmarks.report import report
from qinglan.processes.services import end_with_parent, free_port

V1 = "/v1/models/rewriter:predict"
CLIENTS = 16
RESTART_SECONDS = 20.0
BODY = orjson.dumps({"instances": [{"query": "那它一天吃几次", "tenant_id": "fivedoctors"}]})
HEAD = f"POST {V1} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
MOST_GROWTH = 1.2


class Port(NamedTuple):
    """Address of one of the servers, whichever process it is now."""

    number: int
    log: Path

    def start(self, model: Path) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "serving.rewriter", "--model", str(model), "--port", str(self.number)]
        with self.log.open("ab") as errors:
            process = subprocess.Popen(
                [*command, "--deadline-seconds", "5"],
                stdout=subprocess.PIPE,
                stderr=errors,
                preexec_fn=end_with_parent,
            )
        assert process.stdout is not None
        assert process.stdout.readline(), self.log.read_text()
        return process


class World:
    """Two servers: one is replaced again and again, the other lives through it all and has its memory measured."""

    def __init__(self, model: Path, folder: Path) -> None:
        self.model, self.answers = model, Counter[str]()
        self.ports = [Port(free_port(), folder / f"soak-{number}.log") for number in (0, 1)]
        self.processes = [port.start(model) for port in self.ports]
        self.until = 0.0

    @property
    def running(self) -> bool:
        return time.monotonic() < self.until

    def memory(self) -> float:
        """MiB of the server that is never replaced."""
        return psutil.Process(self.processes[0].pid).memory_info().rss / 2**20


async def good_client(world: World, number: int) -> None:
    """Ask the other server where a connection is refused."""
    async with httpx.AsyncClient(trust_env=False, timeout=30) as http:
        turn = number
        while world.running:
            turn += 1
            url = f"http://127.0.0.1:{world.ports[turn % 2].number}{V1}"
            try:
                answer = await http.post(url, content=BODY, headers={"content-type": "application/json"})
                world.answers[f"answered {answer.status_code}"] += 1
            except httpx.ConnectError:
                world.answers["went to the other"] += 1
            except httpx.HTTPError as error:
                world.answers[f"lost: {type(error).__name__}"] += 1


async def bad_client(world: World, number: int) -> None:
    """One of four kinds, on the server that stays."""
    kinds = (_drops, _silent, _oversize, _hangs_up)
    while world.running:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", world.ports[0].number)
            await kinds[number % len(kinds)](world, reader, writer)
            writer.close()
        except OSError:
            world.answers["bad clients cut off"] += 1
        await asyncio.sleep(random.uniform(0.0, 0.2))


async def _drops(world: World, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write((HEAD % len(BODY)).encode())
    for byte in BODY:
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(0.2)
        if writer.is_closing() or not world.running:
            break
    world.answers[f"by drops: {(await reader.readline())[9:12].decode() or 'closed'}"] += 1


async def _silent(world: World, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(1.0)
    world.answers["said nothing"] += 1


async def _oversize(world: World, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write((HEAD % 5_000_000).encode() + b"x" * 100_000)
    world.answers[f"too much: {(await reader.readline())[9:12].decode() or 'closed'}"] += 1


async def _hangs_up(world: World, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write((HEAD % len(BODY)).encode() + BODY)
    await writer.drain()
    world.answers["hung up"] += 1


async def restarts(world: World) -> None:
    """Drain and end the second server, and start another in its place."""
    while world.running:
        await asyncio.sleep(min(RESTART_SECONDS, max(0.0, world.until - time.monotonic())))
        process = world.processes[1]
        process.send_signal(signal.SIGTERM)
        code = await asyncio.to_thread(process.wait, 30)
        world.answers[f"restarts that ended with {code}"] += 1
        world.processes[1] = await asyncio.to_thread(world.ports[1].start, world.model)


async def load(world: World, seconds: float) -> tuple[float, float]:
    """Memory after the first tenth, and at the end."""
    world.until = time.monotonic() + seconds
    doing = [good_client(world, number) for number in range(CLIENTS)]
    doing += [bad_client(world, number) for number in range(8)]
    tasks = [asyncio.create_task(task) for task in (*doing, restarts(world))]
    await asyncio.sleep(seconds / 10)
    before = world.memory()
    await asyncio.sleep(seconds * 9 / 10)
    after = world.memory()
    await asyncio.gather(*tasks)
    return before, after


def soak(model: Path, folder: Path, seconds: float) -> None:
    world = World(model, folder)
    try:
        before, after = asyncio.run(load(world, seconds))
    finally:
        for process in world.processes:
            process.kill()
            process.wait()
    for name, count in sorted(world.answers.items()):
        print(f"{count:9,} {name}")
    wrong = sum(count for name, count in world.answers.items() if name.startswith("lost") or _wrong(name))
    print(f"memory {before:.0f} MiB after a tenth of the time, {after:.0f} MiB at the end")
    growth = after / before
    report(
        "serving-soak", growth, MOST_GROWTH, growth <= MOST_GROWTH and not wrong, seconds=seconds, errors=wrong,
        answered=world.answers["answered 200"], memory_mib=[round(before), round(after)],
    )  # fmt: skip


def _wrong(name: str) -> bool:
    return name.startswith("answered") and name not in ("answered 200", "answered 429")
