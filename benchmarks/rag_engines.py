"""Both engines of the RAG service beside what a user could run instead. `make bench-rag-engines SIZES="10000 100000"`

At each size one knowledge base is loaded into every engine, then all are open at once, each in a process of its own,
and asked the same queries in turn. A search finds twenty passages; an answer also scores them, as the service does.
No query is asked twice of an engine in one way. Memory is the largest of the process; for OpenSearch the node's
stands beside it. The ratio is tantivy's median search over FTS5's at the largest size that FTS5 was asked at.
"""

import argparse
import os
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil
from rich.console import Console
from rich.table import Table

from benchmarks.knowledge_bases import Query, write_knowledge_base
from benchmarks.memory import largest_memory
from benchmarks.report import report
from benchmarks.search_engines import CONTENDERS, NODE
from benchmarks.searching import Loading, Reply, Serving, load, serving
from qinglan.terminal.progress import progress
from tests.cluster.search.opensearch import Node, node

SIZES = (10_000, 100_000, 1_000_000)
WIDTH = 160
WARM_UP, SEARCHES, ANSWERS = 20, 400, 200
SECONDS = 60.0
"""How long one engine is asked for, each way: who is slow answers fewer queries."""

FEWEST = 2

RANK_BM25_LARGEST = 100_000
"""It keeps a dict for each passage, and looks into all of them for each word of a query."""

TARGET = 1.0


class Times(NamedTuple):
    p50_ms: float
    p99_ms: float
    top1: float
    """The share of queries whose gold passage came first."""

    queries: int


class Measured(NamedTuple):
    """One engine at one size; the largest memory of each process."""

    engine: str
    passages: int
    load_seconds: float
    load_cpu_seconds: float
    """The node's too."""

    passages_per_second: float
    loading_mb: int
    serving_mb: int
    node_mb: int
    """Memory of OpenSearch's own process, loading and serving."""

    disk_mb: float
    search: Times
    answer: Times | None
    """None where the engine scores nothing."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rag_engines")
    parser.add_argument("sizes", type=int, nargs="*", default=SIZES)
    measured: list[Measured] = []
    for size in parser.parse_args().sizes:
        with tempfile.TemporaryDirectory() as scratch:
            results = list(measure(size, Path(scratch)))
        measured += results
        show(size, results)
        if reason := not_tried(size, measured):
            say(reason)
    ratio = ratio_of(measured)
    figures = [{**each._asdict(), "search": each.search._asdict(), "answer": each.answer and each.answer._asdict()}
               for each in measured]  # fmt: skip
    report("rag-engines", ratio, TARGET, ratio <= TARGET, engines=figures)


def measure(size: int, scratch: Path) -> Iterator[Measured]:
    """Every engine at this size: loaded one after the other, then asked in turn."""
    kb = scratch / "kb.jsonl"
    say(f"{size:,} passages: written")
    queries = write_knowledge_base(kb, size, WARM_UP + SEARCHES + ANSWERS)
    engines = [name for name in CONTENDERS if name != "rank_bm25" or size <= RANK_BM25_LARGEST]
    with ExitStack() as stack:
        server = stack.enter_context(started_node(scratch / "node"))
        loads, node_cpu = dict[str, Loading](), dict[str, float]()
        for engine in engines:
            say(f"{size:,} passages: loaded into {engine}")
            before = cpu_seconds(server.pid)
            loads[engine] = load(engine, kb, scratch / engine)
            node_cpu[engine] = cpu_seconds(server.pid) - before if engine == "opensearch" else 0.0
        opened = {engine: stack.enter_context(serving(engine, scratch / engine)) for engine in engines}
        times, memory = ask_all(opened, queries)
        for engine, loading in loads.items():
            remote = engine == "opensearch"
            yield Measured(
                engine, size, round(loading.seconds, 1), round(loading.cpu_seconds + node_cpu[engine], 1),
                passages_per_second=round(size / loading.seconds),
                loading_mb=loading.megabytes, serving_mb=memory[engine],
                node_mb=largest_memory(server.pid) if remote else 0,
                disk_mb=megabytes(server.folder / "data" if remote else scratch / engine),
                search=times[engine]["search"], answer=times[engine].get("answer"),
            )  # fmt: skip


@contextmanager
def started_node(folder: Path) -> Iterator[Node]:
    """A node, known to the processes that are started while it runs."""
    folder.mkdir()
    with node(folder) as server:
        os.environ[NODE] = server.url
        yield server


def ask_all(
    opened: Mapping[str, Serving], queries: Sequence[Query]
) -> tuple[dict[str, dict[str, Times]], dict[str, int]]:
    """The times of each engine, each way, and each process's largest memory."""
    cuts = WARM_UP, WARM_UP + SEARCHES
    ask_in_turn(opened, "search", queries[: cuts[0]])
    replies = {"search": ask_in_turn(opened, "search", queries[cuts[0] : cuts[1]])}
    able = {engine: each for engine, each in opened.items() if each.can_answer}
    replies["answer"] = ask_in_turn(able, "answer", queries[cuts[1] :])
    times = {
        engine: {operation: times_of(results[engine]) for operation, results in replies.items() if engine in results}
        for engine in opened
    }
    return times, {engine: max(entry.megabytes for entry, _ in replies["search"][engine]) for engine in opened}


def ask_in_turn(
    opened: Mapping[str, Serving], operation: str, queries: Sequence[Query]
) -> dict[str, list[tuple[Reply, Query]]]:
    """Each query goes to every engine before the next one, in another order each time."""
    results: dict[str, list[tuple[Reply, Query]]] = {engine: [] for engine in opened}
    spent = dict.fromkeys(opened, 0.0)
    names = list(opened)
    with progress(f"{operation} {', '.join(names)}", len(queries)) as tick:
        for number, query in enumerate(queries):
            for engine in names[number % len(names) :] + names[: number % len(names)]:
                if spent[engine] < SECONDS or len(results[engine]) < FEWEST:
                    replies = opened[engine].ask(operation, query.text)
                    results[engine].append((replies, query))
                    spent[engine] += replies.seconds
            tick()
    return results


def times_of(results: Sequence[tuple[Reply, Query]]) -> Times:
    cuts = statistics.quantiles([1000 * replies.seconds for replies, _ in results], n=100)
    right = sum(replies.first == query.gold for replies, query in results)
    return Times(round(cuts[49], 2), round(cuts[98], 2), round(right / len(results), 3), len(results))


def cpu_seconds(process: int) -> float:
    spent = psutil.Process(process).cpu_times()
    return float(spent.user + spent.system)


def megabytes(folder: Path) -> float:
    return round(sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6, 1)


def ratio_of(measured: Sequence[Measured]) -> float:
    largest = max(each.passages for each in measured)
    medians = {each.engine: each.search.p50_ms for each in measured if each.passages == largest}
    return medians["tantivy"] / medians["fts5"]


def not_tried(size: int, measured: Sequence[Measured]) -> str:
    """Estimate what rank_bm25 would have taken, from a smaller size."""
    smaller = [each for each in measured if each.engine == "rank_bm25"]
    if size <= RANK_BM25_LARGEST or not smaller:
        return ""
    known = smaller[-1]
    times = size / known.passages
    return (
        f"rank_bm25 not tried at {size:,}: {times:.0f} times what it took at {known.passages:,} would be "
        f"{times * known.load_seconds:,.0f} s to load, {times * known.serving_mb:,.0f} MB and "
        f"{times * known.search.p50_ms:,.0f} ms a search"
    )


def show(size: int, results: Sequence[Measured]) -> None:
    columns = ("load s", "CPU s", "a second", "MB loading", "serving", "node", "on disk")
    more = ("search p50 ms", "p99", "answer p50", "p99", "top-1", "queries")
    table = Table("", *columns, *more, title=f"{size:,} passages")
    for each in results:
        answer = each.answer
        table.add_row(
            each.engine, f"{each.load_seconds:,}", f"{each.load_cpu_seconds:,}", f"{each.passages_per_second:,}",
            f"{each.loading_mb:,}", f"{each.serving_mb:,}", f"{each.node_mb:,}" if each.node_mb else "",
            f"{each.disk_mb:,.0f}", f"{each.search.p50_ms:,.2f}", f"{each.search.p99_ms:,.2f}",
            f"{answer.p50_ms:,.2f}" if answer else "", f"{answer.p99_ms:,.2f}" if answer else "",
            f"{each.search.top1:.3f}", str(each.search.queries),
        )  # fmt: skip
    Console(width=WIDTH).print(table)


def say(what: str) -> None:
    print(f"[rag-engines] {what}", flush=True)


if __name__ == "__main__":
    main()
