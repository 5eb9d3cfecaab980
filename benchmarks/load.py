"""Clients in a process of their own, each asking again as soon as it is answered.

measure("http://127.0.0.1:8080/predict", bodies, clients=8, seconds=8.0)
"""

import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import orjson

WARM_UP = 1.0
HEAD = "POST %s HTTP/1.1\r\nhost: here\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"


class Load(NamedTuple):
    """Answers that some clients got."""

    clients: int
    requests_per_second: float
    p50_ms: float
    p99_ms: float


def measure(url: str, bodies: Path, clients: int, seconds: float) -> Load:
    """Post the file's lines in turn, so that clients and service do not share an interpreter."""
    command = [sys.executable, "-m", "benchmarks.load", url, str(bodies), str(clients), str(seconds)]
    answered = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=seconds * 5 + 30)
    return Load(*orjson.loads(answered.stdout))


async def ask_for_a_while(url: str, bodies: Sequence[bytes], clients: int, seconds: float) -> Load:
    warm_until = time.perf_counter() + WARM_UP
    until = warm_until + seconds
    address = urlsplit(url)

    async def client(number: int) -> list[float]:
        """Plain HTTP/1.1 over one kept connection: a client library would cost more than the service."""
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        times, turn = [], number
        while (started := time.perf_counter()) < until:
            body = bodies[turn % len(bodies)]
            writer.write((HEAD % (address.path, len(body))).encode() + body)
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 "), head
            await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]))
            if started > warm_until:
                times.append(time.perf_counter() - started)
            turn += clients
        writer.close()
        return times

    results = await asyncio.gather(*(client(number) for number in range(clients)))
    return summary(clients, [duration for times in results for duration in times], seconds)


def summary(clients: int, times: Sequence[float], seconds: float) -> Load:
    cuts = statistics.quantiles(times, n=100)
    return Load(clients, round(len(times) / seconds, 1), round(cuts[49] * 1000, 3), round(cuts[98] * 1000, 3))


if __name__ == "__main__":
    url, requests_file, clients, seconds = sys.argv[1:]
    lines = Path(requests_file).read_bytes().split(b"\n")
    print(orjson.dumps(list(asyncio.run(ask_for_a_while(url, lines, int(clients), float(seconds))))).decode())
