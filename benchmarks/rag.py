"""Cost of the RAG service over calling its engine: requests a second and latency at 10,000 passages.

python -m benchmarks.rag    about 40 s; the last line is JSON
"""

import asyncio
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
from rich.console import Console
from rich.table import Table

from benchmarks.load import Load, measure, summary
from qinglan.files.files import dump_line
from qinglan.rag.contract import RAG_PATH, Passage, RagRequest
from qinglan.rag.lexical.index import Index, build_index
from serving.rag.engine import TantivyEngine
from serving.rag.rerank.lexical_reranker import DEFAULT_RERANKER
from serving.rag.retrieve import retrieve

PASSAGES = 10_000
QUERIES = 2_000
CLIENTS = (1, 8, 32)
SECONDS = 8.0
TARGET = 2.5
"""One search and two scorings are about a millisecond of work. Parsing, checking and writing JSON in Python with
FastAPI is about as much again, on a machine whose second core the client takes: under 2.5 the service is no
worse a home for the engine than any FastAPI service; above it, something of ours is in the way."""

TENANT = "bench"


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        folder, console = Path(scratch), Console()
        kb = write_passages(folder / "kb.jsonl")
        started = time.perf_counter()
        index = build_index(kb, folder / "index", TENANT)
        console.print(f"{PASSAGES:,} passages indexed in {time.perf_counter() - started:.1f} s")
        requests = make_requests()
        direct = measure_engine(TantivyEngine(Index.open(index), DEFAULT_RERANKER), requests)
        queries = folder / "requests.jsonl"
        queries.write_bytes(b"\n".join(requests))
        with service(kb, folder / "index") as url:
            loads = [measure(url + RAG_PATH, queries, clients, SECONDS) for clients in CLIENTS]
    report(console, direct, loads)


def write_passages(path: Path) -> Path:
    """Passages of 150 to 250 characters made of 3,000 seeded words, so that pairs repeat as in a language."""
    rng = random.Random(0)
    with path.open("wb") as file:
        for number in range(PASSAGES):
            title = f"{rng.choice(WORDS)}{rng.choice(WORDS)} {rng.choice(WORDS)}"
            content = "，".join("".join(rng.choices(WORDS, k=4)) for _ in range(rng.randint(13, 21)))
            file.write(dump_line(Passage(id=f"p{number}", title=title, content=content)))
    return path


def _words(count: int) -> list[str]:
    rng = random.Random(1)
    common = [chr(0x4E00 + rng.randrange(2500)) for _ in range(900)]
    return ["".join(rng.choices(common, k=rng.choice((2, 2, 3, 4)))) for _ in range(count)]


WORDS = _words(3000)


def make_requests() -> list[bytes]:
    """Bodies as training sends them: a rewrite of a few words, and a need of about twice as many."""
    rng = random.Random(2)
    return [
        orjson.dumps(
            RagRequest(
                query=rng.choice(WORDS), rewritten_query=" ".join(rng.choices(WORDS, k=4)),
                need="".join(rng.choices(WORDS, k=6)), tenant_id=TENANT, score_threshold=0.0,
            ).model_dump()
        )
        for _ in range(QUERIES)
    ]  # fmt: skip


def measure_engine(engine: TantivyEngine, bodies: list[bytes]) -> Load:
    """Do the service's work in this process, without HTTP."""
    queries = [RagRequest.model_validate_json(body) for body in bodies]

    async def run() -> list[float]:
        times = []
        for request in queries * 2:
            started = time.perf_counter()
            await retrieve(
                engine, request.rewritten_query or "", request.top_k, request.score_threshold, request.need
            )
            times.append(time.perf_counter() - started)
        return times[len(queries) :]

    times = asyncio.run(run())
    return summary(0, times, sum(times))


@contextmanager
def service(kb: Path, root: Path) -> Iterator[str]:
    command = [
        sys.executable,
        "-m",
        "serving.rag",
        "--kb",
        f"{TENANT}={kb}",
        "--index-root",
        str(root),
        "--port",
        "0",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        try:
            yield str(orjson.loads(process.stdout.readline())["rag"])
        finally:
            process.terminate()


def report(console: Console, direct: Load, loads: list[Load]) -> None:
    table = Table("", "requests/s", "p50 ms", "p99 ms", title=f"RAG service, {PASSAGES:,} passages, with a need")
    for load in (direct, *loads):
        name = f"{load.clients} clients" if load.clients else "engine, called directly"
        table.add_row(name, f"{load.requests_per_second:,.0f}", f"{load.p50_ms:.2f}", f"{load.p99_ms:.2f}")
    console.print(table)
    ratio = round(loads[0].p50_ms / direct.p50_ms, 2)
    figures = {"direct": direct._asdict(), "service": [load._asdict() for load in loads]}
    line = {"name": "rag", "ratio": ratio, "target": TARGET, "ok": ratio <= TARGET, **figures}
    print(orjson.dumps(line).decode())


if __name__ == "__main__":
    main()
