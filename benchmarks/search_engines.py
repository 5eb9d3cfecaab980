"""Engines that search a knowledge base, each behind the same two steps: load it into a folder, then open that.

All find passages by BM25 over character pairs (OpenSearch by those of its cjk analyzer) and hand over the first
twenty. Ours is called as the RAG service calls it; the others as their manuals do.
"""

import asyncio
import os
import pickle
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.knowledge_bases import TENANT
from qinglan.rag.contract import Passage
from qinglan.rag.knowledge_base import read_knowledge_base, searched_text
from qinglan.rag.lexical.index import Index, build_index
from qinglan.text.text import search_terms
from serving.rag.engine import Engine, TantivyEngine
from serving.rag.rerank.lexical_reranker import DEFAULT_RERANKER
from serving.rag.retrieve import CANDIDATES, retrieve

NODE = "BENCH_OPENSEARCH"
"""The environment's name of the node's address."""

PATIENCE_SECONDS = 300.0
DEADLINE_SECONDS = 60.0
SQLITE_AT_ONCE = 10_000

Ask = Callable[[str], str]
"""The id of the first passage for a query, with the others fetched too."""


class Opened(NamedTuple):
    search: Ask
    answer: Ask | None = None
    """A search and the scores of what it found: all that the RAG service does for a query but HTTP."""


class Contender(NamedTuple):
    load: Callable[[Path, Path], None]
    open: Callable[[Path], Opened]


def load_tantivy(kb: Path, folder: Path) -> None:
    build_index(kb, folder, TENANT)


def open_tantivy(folder: Path) -> Opened:
    (built,) = (folder / TENANT / "default").iterdir()
    return _engine(TantivyEngine(Index.open(built), DEFAULT_RERANKER), asyncio.new_event_loop())


def load_opensearch(kb: Path, folder: Path) -> None:
    from serving.rag.opensearch.loader import load
    from serving.rag.opensearch_connection import OpenSearchConfig, connect_to_load

    client = connect_to_load(OpenSearchConfig(url=os.environ[NODE], deadline_seconds=PATIENCE_SECONDS))
    load(client, kb, TENANT, "default", replicas=0, patience_seconds=PATIENCE_SECONDS, refused=folder / "refused")


def open_opensearch(_: Path) -> Opened:
    from serving.rag.opensearch.cluster_client import ClusterClient
    from serving.rag.opensearch.engine import AliasEngine
    from serving.rag.opensearch_connection import OpenSearchConfig

    cluster = ClusterClient(OpenSearchConfig(url=os.environ[NODE], deadline_seconds=DEADLINE_SECONDS))
    loop = asyncio.new_event_loop()
    return _engine(loop.run_until_complete(AliasEngine(cluster, TENANT, "default", DEFAULT_RERANKER).current()), loop)


def _engine(engine: Engine, loop: asyncio.AbstractEventLoop) -> Opened:
    def search(query: str) -> str:
        hits = loop.run_until_complete(engine.search(query, CANDIDATES))
        return hits[0].passage.id if hits else ""

    def answer(query: str) -> str:
        shown = loop.run_until_complete(retrieve(engine, query, CANDIDATES, 0.0, None))
        return shown.recall[0].id if shown.recall else ""

    return Opened(search, answer)


def load_fts5(kb: Path, folder: Path) -> None:
    """Passages in a table, their pairs in FTS5 as words; what it keeps of them is what it needs to search."""
    rows = enumerate(read_knowledge_base(kb))
    with sqlite3.connect(folder / "fts5.sqlite") as store:
        store.execute("PRAGMA journal_mode = OFF")
        store.execute("CREATE TABLE passages (number INTEGER PRIMARY KEY, id TEXT, title TEXT, content TEXT)")
        store.execute("CREATE VIRTUAL TABLE searched USING fts5(pairs, content='')")
        while batch := [row for row, _ in zip(rows, range(SQLITE_AT_ONCE), strict=False)]:
            store.executemany(
                "INSERT INTO passages VALUES (?, ?, ?, ?)",
                ((number, p.id, p.title, p.content) for number, p in batch),
            )
            pairs = ((number, " ".join(search_terms(searched_text(passage)))) for number, passage in batch)
            store.executemany("INSERT INTO searched (rowid, pairs) VALUES (?, ?)", pairs)
        store.execute("INSERT INTO searched (searched) VALUES ('optimize')")


def open_fts5(folder: Path) -> Opened:
    store = sqlite3.connect(folder / "fts5.sqlite")
    ranked = "SELECT rowid AS found, rank FROM searched WHERE searched MATCH ? ORDER BY rank LIMIT ?"
    hits = f"SELECT id, title, content FROM passages JOIN ({ranked}) ON number = found ORDER BY rank"

    def search(query: str) -> str:
        words = " OR ".join(f'"{pair}"' for pair in dict.fromkeys(search_terms(query)))
        rows = store.execute(hits, (words, CANDIDATES)).fetchall()
        return str(rows[0][0]) if rows else ""

    return Opened(search)


def load_rank_bm25(kb: Path, folder: Path) -> None:
    """It has no form on disk of its own: a user would pickle it."""
    from rank_bm25 import BM25Okapi

    stored: list[Passage] = []

    def texts() -> Iterator[list[str]]:
        for passage in read_knowledge_base(kb):
            stored.append(passage)
            yield search_terms(searched_text(passage))

    ranked = BM25Okapi(texts(), k1=1.2, b=0.75)
    with (folder / "rank_bm25.pickle").open("wb") as file:
        pickle.dump((ranked, stored), file)


def open_rank_bm25(folder: Path) -> Opened:
    import numpy as np

    with (folder / "rank_bm25.pickle").open("rb") as file:
        ranked, stored = pickle.load(file)

    def search(query: str) -> str:
        scores: Any = ranked.get_scores(list(dict.fromkeys(search_terms(query))))
        best = np.argpartition(-scores, CANDIDATES)[:CANDIDATES]
        return str(stored[best[np.argmax(scores[best])]].id)

    return Opened(search)


CONTENDERS = {
    "tantivy": Contender(load_tantivy, open_tantivy),
    "opensearch": Contender(load_opensearch, open_opensearch),
    "fts5": Contender(load_fts5, open_fts5),
    "rank_bm25": Contender(load_rank_bm25, open_rank_bm25),
}
