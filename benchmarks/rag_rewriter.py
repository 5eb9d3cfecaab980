"""Waiting times of the RAG service's users where the rewriter hangs, is slow, or is asked the same again.

    make bench-rag-rewriter    about two minutes; the last line is JSON

Questions come by the clock, 20 a second, whether or not those before are answered. Each rewriter is a stub on a
socket. Each scene runs twice: with the service as it is, and as it was (a second for every rewrite, no cache, no
breaker).
"""

import asyncio
import random
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import orjson
import uvicorn
from rich.console import Console
from rich.table import Table

from benchmarks.open_loop import ask_by_the_clock, latency
from benchmarks.rag import TENANT, write_passages
from benchmarks.rag_questions import count_writers, make_questions, request_bodies
from benchmarks.report import report
from qinglan.rag.contract import RAG_PATH
from qinglan.rag.lexical.index import Index, build_index
from serving.rag import rewriter_client
from serving.rag.app import Engines, create_app
from serving.rag.config import RewriterConfig
from serving.rag.engine import TantivyEngine
from serving.rag.rerank.lexical_reranker import DEFAULT_RERANKER

PER_SECOND, SECONDS = 20, 20.0
TARGET = 10.0
"""Factor by which a wait of a second shrinks where nobody waits: a search with its HTTP is left, and some room."""

MEDIAN, SPREAD = 0.9, 0.27
"""Seconds of the slow rewriter: the plan's median, and 1.4 at the 95th percentile (log-normal)."""

HANGS, ANSWERED = "hangs after 40 answers", 40
NEVER = 10**9
BEFORE = {"deadline_seconds": 1.0, "cached_rewrites": 0}
HEAD = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n"


class Scene(NamedTuple):
    """A rewriter, and how often users ask the same."""

    name: str
    seconds: Callable[[random.Random, int], float]
    """Time of its next answer, and the number of questions before it."""

    questions: list[str]


class Outcome(NamedTuple):
    """Answers that users got."""

    p50_ms: float
    p95_ms: float
    rewritten: float
    """Share of the questions that were searched by a rewrite."""

    reached: int
    """Questions that came to the rewriter."""


def scenes() -> list[Scene]:
    new, popular = make_questions(int(PER_SECOND * SECONDS))
    return [
        Scene(HANGS, lambda _, before: 0.1 if before < ANSWERED else 3600.0, new),
        Scene(f"median {MEDIAN * 1000:.0f} ms", lambda rng, _: MEDIAN * rng.lognormvariate(0, SPREAD), new),
        Scene("100 ms, popular questions", lambda *_: 0.1, popular),
    ]


@asynccontextmanager
async def stub(seconds: Callable[[random.Random, int], float]) -> AsyncIterator[tuple[str, list[int]]]:
    """A rewriter that answers after `seconds`; its URL, and the number of questions that reached it."""
    rng, reached = random.Random(1), [0]

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                content = await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]))
                wait, reached[0] = seconds(rng, reached[0]), reached[0] + 1
                await asyncio.sleep(wait)
                query = orjson.loads(content)["instances"][0]["query"]
                body = orjson.dumps({"predictions": [{"rewritten_query": query, "model_version": "1"}]})
                writer.write(HEAD.format(len(body)).encode() + body)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(converse, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", reached
    finally:
        server.close()


@contextmanager
def service(engines: Engines, rewriter: rewriter_client.RewriterClient) -> Iterator[str]:
    """The service in a thread, on a socket."""
    config = uvicorn.Config(create_app(engines, rewriter), port=0, log_level="error")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            if not thread.is_alive():
                raise RuntimeError("the service did not start; uvicorn's own lines above say why")
            time.sleep(0.01)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


async def play(scene: Scene, engines: Engines, before: bool) -> Outcome:
    async with stub(scene.seconds) as (url, reached):
        failures = NEVER if before else rewriter_client.FAILURES
        with mock.patch.object(rewriter_client, "FAILURES", failures):
            client = rewriter_client.RewriterClient(
                RewriterConfig.model_validate({"url": url, **(BEFORE if before else {})})
            )
        with service(engines, client) as rag:
            answers = await ask_by_the_clock(rag + RAG_PATH, request_bodies(scene.questions, TENANT), PER_SECOND)
    waited, rewritten = latency(answers), count_writers(answers)["model"] / len(answers)
    return Outcome(waited.p50_ms, waited.p95_ms, round(rewritten, 3), reached[0])


def main() -> None:
    table = Table("rewriter", "service", "p50 ms", "p95 ms", "rewritten", "reached it")
    figures: dict[str, dict[str, dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        index = build_index(write_passages(Path(scratch) / "kb.jsonl"), Path(scratch) / "index", TENANT)
        engines: Engines = {(TENANT, "default"): TantivyEngine(Index.open(index), DEFAULT_RERANKER)}
        for scene in scenes():
            for name, before in (("before", True), ("now", False)):
                outcome = asyncio.run(play(scene, engines, before))
                figures.setdefault(scene.name, {})[name] = outcome._asdict()
                table.add_row(
                    scene.name, name, f"{outcome.p50_ms:,.0f}", f"{outcome.p95_ms:,.0f}", f"{outcome.rewritten:.1%}",
                    f"{outcome.reached:,}",
                )  # fmt: skip
    Console().print(table)
    ratio = figures[HANGS]["before"]["p50_ms"] / figures[HANGS]["now"]["p50_ms"]
    report("rag-rewriter", ratio, TARGET, ratio >= TARGET, questions=int(PER_SECOND * SECONDS), figures=figures)


if __name__ == "__main__":
    main()
