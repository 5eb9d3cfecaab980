"""The rewriter under load: before a real vLLM on this machine's CPU, and with transformers in its own process.

    make bench-serving                                     both, vLLM itself, and the RAG service before them
    python -m benchmarks.serving --soak 30                 half an hour of load with faults: errors, memory growth

Each is first asked by 32 clients at once, for what it can do. Then requests go out by the clock, whether or not the
ones before are answered, at half of what the slower of the two servers can do: the same rate for all. The model has
less than a million parameters, so these are the costs of engines and servers, not of a model's size.
"""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import orjson
from rich.console import Console
from rich.table import Table

from benchmarks.load import measure
from benchmarks.open_loop import Latency, ask_by_the_clock, latency
from benchmarks.report import report
from benchmarks.serving_rag import RagLoad, rag_loads, rag_table
from benchmarks.serving_soak import soak
from benchmarks.serving_world import server

CLIENTS = 32
SATURATED_SECONDS, PACED_SECONDS = 8.0, 30.0
TIMES_ENGINE = 1.5
"""The target: p50 through our server before vLLM, against vLLM itself."""

WIDTH = 150
"""Characters of the tables, also where the output is no terminal."""

V1 = "/v1/models/rewriter:predict"
ENGINE, BEFORE_VLLM, IN_PROCESS = "vLLM itself", "our server before vLLM", "our server, transformers in its process"


class Target(NamedTuple):
    """An address and the bodies that are posted to it in turn."""

    name: str
    url: str
    bodies: Sequence[bytes]


class Paced(NamedTuple):
    """Requests that were sent by the clock, and their outcomes."""

    sent: int
    failed: int
    fallbacks: int
    waited: Latency


def pace(target: Target, per_second: float) -> Paced:
    count = int(per_second * PACED_SECONDS)
    bodies = list(islice(cycle(target.bodies), count))
    answers = asyncio.run(ask_by_the_clock(target.url, bodies, per_second))
    failed = sum(answer.status != 200 for answer in answers)
    fallbacks = sum(b'"fallback"' in answer.content for answer in answers)
    return Paced(count, failed, fallbacks, latency(answers))


def capacity(target: Target, folder: Path) -> float:
    """Requests a second that clients get who ask again as soon as they are answered."""
    bodies = folder / "bodies.jsonl"
    bodies.write_bytes(b"\n".join(target.bodies))
    return measure(target.url, bodies, CLIENTS, SATURATED_SECONDS).requests_per_second


class Figures(NamedTuple):
    """Throughput of each server, its latency at the common rate, and the answers of the RAG service."""

    able: dict[str, float]
    rate: float
    paced: dict[str, Paced]
    rag: dict[str, RagLoad]


def run(folder: Path) -> Figures:
    from qinglan.prompts import student_messages
    from qinglan.rewriter.card import read_card
    from qinglan.rewriter.engine import COMPLETIONS_PATH, completion_request
    from qinglan.rewriter.model import load_tokenizer, render_prompt
    from tests.models.real_vllm import QUESTIONS, exported_release, real_engine, runtime_options

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
        paced = {target.name: pace(target, rate) for target in targets}
        return Figures(able, rate, paced, rag_loads(folder, engine, before, rate, able[BEFORE_VLLM]))


def show(figures: Figures) -> None:
    columns = (
        "",
        f"a second, {CLIENTS} clients",
        "sent",
        "p50 ms",
        "p95 ms",
        "p99 ms",
        "fallbacks",
        "failed",
    )
    table = Table(*columns, title=f"by the clock, {figures.rate:.0f} requests a second to each")
    for name, row in figures.paced.items():
        able = f"{figures.able[name]:.0f}"
        table.add_row(name, able, str(row.sent), *row.waited.cells(), str(row.fallbacks), str(row.failed))
    console = Console(file=sys.stdout, width=WIDTH)
    console.print(table)
    console.print(rag_table(figures.rag))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving")
    parser.add_argument("--soak", type=float, metavar="MINUTES")
    minutes = parser.parse_args().soak
    with TemporaryDirectory() as folder:
        if minutes:
            from tests.models.tiny_rewriter import taught_model

            soak(taught_model(Path(folder) / "model"), Path(folder), minutes * 60)
            return
        figures = run(Path(folder))
    show(figures)
    engine, before, alone = (figures.paced[name] for name in (ENGINE, BEFORE_VLLM, IN_PROCESS))
    ratio = before.waited.p50_ms / engine.waited.p50_ms
    report(
        "serving", ratio, TIMES_ENGINE, ratio <= TIMES_ENGINE and not before.failed + alone.failed,
        per_second=round(figures.rate, 1),
        vllm=before.waited._asdict(), transformers=alone.waited._asdict(),
        fallbacks={"vllm": before.fallbacks, "transformers": alone.fallbacks},
        capacity_to_transformers=round(figures.able[BEFORE_VLLM] / figures.able[IN_PROCESS], 2),
        p50_to_transformers=round(before.waited.p50_ms / alone.waited.p50_ms, 2),
        rag={name: load.figures() for name, load in figures.rag.items()},
    )  # fmt: skip


if __name__ == "__main__":
    main()
