"""The RAG service before the rewriter before a real vLLM, under load by the clock: what users wait, and for what.

Part of `make bench-serving`. Five scenes, each with the service in a process of its own and an empty memory:
questions that nobody asked before, popular ones, twice as many as the rewriter can answer, an engine that hangs for
some seconds in the middle, and at last one that is killed.
"""

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from rich.table import Table

from benchmarks.open_loop import Latency, ask_by_the_clock, latency
from benchmarks.rag import write_passages
from benchmarks.rag_questions import count_writers, make_questions, request_bodies
from qinglan.processes.services import run_service
from qinglan.rag.contract import RAG_PATH
from qinglan.rag.lexical.index import build_index
from qinglan.rewriter.engine_process import Engine

SECONDS, HANG_SECONDS = 15.0, 5.0
MANY = 2.0
"""Questions a second of the overload, in those that the rewriter can answer."""

TENANT = "fivedoctors"


class RagScene(NamedTuple):
    """Questions at a rate, and what happens to the engine at a third of the time."""

    name: str
    questions: list[str]
    per_second: float
    event: Callable[[Engine], None] = lambda engine: None


class RagLoad(NamedTuple):
    """Answers that users get, by load."""

    per_second: float
    waited: Latency
    writers: Counter[str]
    """Queries that the model wrote ("model"), and reasons why the plain question was searched."""

    def figures(self) -> dict[str, object]:
        return {"per_second": round(self.per_second, 1), **self.waited._asdict(), "queries": dict(self.writers)}


def scenes(per_second: float, capacity: float) -> list[RagScene]:
    """The usual rate for all but the overload; each scene has questions of its own."""

    def new(seed: int, rate: float = per_second) -> list[str]:
        return make_questions(int(rate * SECONDS), seed)[0]

    _, popular = make_questions(int(per_second * SECONDS), seed=1)
    return [
        RagScene("new questions", new(0), per_second),
        RagScene("popular questions", popular, per_second),
        RagScene(f"{MANY:g} times what it can", new(2, MANY * capacity), MANY * capacity),
        RagScene(f"the engine hangs for {HANG_SECONDS:g} s", new(3), per_second, hang),
        RagScene("the engine is killed", new(4), per_second, kill),
    ]


def hang(engine: Engine) -> None:
    """Stop the engine's whole session, and continue it after HANG_SECONDS."""
    os.killpg(engine.process.pid, signal.SIGSTOP)
    asyncio.get_running_loop().call_later(HANG_SECONDS, os.killpg, engine.process.pid, signal.SIGCONT)


def kill(engine: Engine) -> None:
    os.killpg(engine.process.pid, signal.SIGKILL)


def rag_loads(folder: Path, engine: Engine, rewriter: str, per_second: float, capacity: float) -> dict[str, RagLoad]:
    """All scenes, in order; the last one kills the engine."""
    passages = write_passages(folder / "kb.jsonl")
    build_index(passages, folder / "index", TENANT)
    loads = {}
    for scene in scenes(per_second, capacity):
        options = ["--kb", f"{TENANT}={passages}", "--index-root", str(folder / "index"), "--rewriter", rewriter]
        with run_service("serving.rag", [*options, "--port", "0"], folder / "rag.log") as url:
            loads[scene.name] = asyncio.run(play(scene, engine, url))
    return loads


async def play(scene: RagScene, engine: Engine, url: str) -> RagLoad:
    asyncio.get_running_loop().call_later(SECONDS / 3, scene.event, engine)
    answers = await ask_by_the_clock(url + RAG_PATH, request_bodies(scene.questions, TENANT), scene.per_second)
    return RagLoad(scene.per_second, latency(answers), count_writers(answers))


def rag_table(loads: dict[str, RagLoad]) -> Table:
    columns = "", "a second", "p50 ms", "p95 ms", "p99 ms", "the model's query", "the plain question"
    out = Table(*columns, title="the RAG service before our server before vLLM")
    for name, load in loads.items():
        plain = ", ".join(f"{count} {reason}" for reason, count in load.writers.items() if reason != "model")
        out.add_row(name, f"{load.per_second:.0f}", *load.waited.cells(), str(load.writers["model"]), plain)
    return out
