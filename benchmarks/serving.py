"""The rewriter under load: before a real vLLM on this machine's CPU, and with transformers in its own process.

    make bench-serving                                     both, and vLLM itself, in one run
    python -m benchmarks.serving --soak 30                 half an hour of load with faults: errors, memory growth

Each is first asked by 32 clients at once, for what it can do. Then requests go out by the clock, whether or not the
ones before are answered, at half of what the slower of the two servers can do: the same rate for all. The model has
less than a million parameters, so these are the costs of engines and servers, not of a model's size.
"""

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import httpx
import orjson
from rich.console import Console
from rich.table import Table

from benchmarks.load import measure
from benchmarks.report import report
from benchmarks.serving_soak import soak
from benchmarks.serving_world import server

CLIENTS = 32
SATURATED_SECONDS, PACED_SECONDS = 8.0, 30.0
TIMES_ENGINE = 1.5
"""The target: p50 through our server before vLLM, against vLLM itself."""

V1 = "/v1/models/rewriter:predict"
ENGINE, BEFORE_VLLM, IN_PROCESS = "vLLM itself", "our server before vLLM", "our server, transformers in its process"


class Target(NamedTuple):
    """An address and the bodies that are posted to it in turn."""

    name: str
    url: str
    bodies: Sequence[bytes]


class Paced(NamedTuple):
    """Requests that went out by the clock, and how they ended."""

    sent: int
    failed: int
    fallbacks: int
    p50_ms: float
    p95_ms: float
    p99_ms: float


async def pace(target: Target, per_second: float, seconds: float) -> Paced:
    limits = httpx.Limits(max_connections=1000, max_keepalive_connections=1000)
    times, failed, fallbacks = list[float](), 0, 0
    async with httpx.AsyncClient(limits=limits, trust_env=False, timeout=30) as http:

        async def send(number: int, due: float) -> None:
            nonlocal failed, fallbacks
            body = target.bodies[number % len(target.bodies)]
            answer = await http.post(target.url, content=body, headers={"content-type": "application/json"})
            times.append(time.perf_counter() - due)  # from when it was due: a late client is no fast server
            failed += answer.status_code != 200
            fallbacks += b'"fallback"' in answer.content

        await asyncio.gather(*(send(number, time.perf_counter()) for number in range(8)))  # opens connections
        times.clear()
        failed = fallbacks = 0
        tasks, started = list[asyncio.Task[None]](), time.perf_counter()
        for number in range(int(per_second * seconds)):
            due = started + number / per_second
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            tasks.append(asyncio.create_task(send(number, due)))
        await asyncio.gather(*tasks)
    cuts = statistics.quantiles(times, n=100)
    return Paced(len(times), failed, fallbacks, *(round(cuts[at] * 1000, 2) for at in (49, 94, 98)))


def capacity(target: Target, folder: Path) -> float:
    """Requests a second that clients get who ask again as soon as they are answered."""
    bodies = folder / "bodies.jsonl"
    bodies.write_bytes(b"\n".join(target.bodies))
    return measure(target.url, bodies, CLIENTS, SATURATED_SECONDS).requests_per_second


def run(folder: Path) -> tuple[dict[str, float], dict[str, Paced]]:
    """Throughput of each, and how it answers at the common rate."""
    from qinglan.prompts import student_messages
    from qinglan.rewriter.card import read_card
    from qinglan.rewriter.engine import COMPLETIONS_PATH, completion_request
    from qinglan.rewriter.model import load_tokenizer, render_prompt
    from tests.real_vllm import QUESTIONS, exported_release, real_engine, runtime_options

    release = exported_release(folder)
    card, tokenizer = read_card(release), load_tokenizer(release)
    prompts = [
        render_prompt(tokenizer, student_messages(row, card.system_prompts[row.tenant_id])) for row in QUESTIONS
    ]
    completions = [orjson.dumps(completion_request("rewriter", prompt, card.max_new_tokens)) for prompt in prompts]
    questions = [
        orjson.dumps({"instances": [{"query": row.question, "tenant_id": row.tenant_id}]}) for row in QUESTIONS
    ]
    options = runtime_options("qinglan-rewriter-vllm", release)
    with (
        real_engine(folder / "base", options, folder / "vllm.log") as engine,
        server(release, folder / "before.log", "--backend", engine.url) as before,
        server(release, folder / "alone.log") as alone,
    ):
        targets = [
            Target(ENGINE, engine.url + COMPLETIONS_PATH, completions),
            Target(BEFORE_VLLM, before + V1, questions),
            Target(IN_PROCESS, alone + V1, questions),
        ]
        able = {target.name: capacity(target, folder) for target in targets}
        rate = min(able[BEFORE_VLLM], able[IN_PROCESS]) / 2
        return able, {target.name: asyncio.run(pace(target, rate, PACED_SECONDS)) for target in targets}


def show(able: dict[str, float], paced: dict[str, Paced], rate: float) -> None:
    columns = (
        "",
        f"requests a second, {CLIENTS} clients",
        "sent",
        "p50 ms",
        "p95 ms",
        "p99 ms",
        "fallbacks",
        "failed",
    )
    table = Table(*columns, title=f"by the clock, {rate:.0f} requests a second to each")
    for name, row in paced.items():
        times = (f"{value:.1f}" for value in (row.p50_ms, row.p95_ms, row.p99_ms))
        table.add_row(name, f"{able[name]:.0f}", str(row.sent), *times, str(row.fallbacks), str(row.failed))
    Console(file=sys.stdout).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving")
    parser.add_argument("--soak", type=float, metavar="MINUTES")
    minutes = parser.parse_args().soak
    with TemporaryDirectory() as folder:
        if minutes:
            from tests.tiny_rewriter import taught_model

            soak(taught_model(Path(folder) / "model"), Path(folder), minutes * 60)
            return
        able, paced = run(Path(folder))
    rate = min(able[BEFORE_VLLM], able[IN_PROCESS]) / 2
    show(able, paced, rate)
    engine, before, alone = paced[ENGINE], paced[BEFORE_VLLM], paced[IN_PROCESS]
    ratio = before.p50_ms / engine.p50_ms
    report(
        "serving", ratio, TIMES_ENGINE, ratio <= TIMES_ENGINE and not before.failed + alone.failed,
        per_second=round(rate, 1),
        p50_ms={"vllm": before.p50_ms, "transformers": alone.p50_ms},
        p95_ms={"vllm": before.p95_ms, "transformers": alone.p95_ms},
        p99_ms={"vllm": before.p99_ms, "transformers": alone.p99_ms},
        fallbacks={"vllm": before.fallbacks, "transformers": alone.fallbacks},
        capacity_to_transformers=round(able[BEFORE_VLLM] / able[IN_PROCESS], 2),
        p50_to_transformers=round(before.p50_ms / alone.p50_ms, 2),
    )  # fmt: skip


if __name__ == "__main__":
    main()
