"""Retrieval of a benchmark's queries by our RAG service, which is started on loopback for its corpus."""

import asyncio
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks.beir.dataset import Dataset
from benchmarks.beir.rewriters import LONGEST_QUERY
from qinglan.concurrency import map_in_order
from qinglan.processes.services import run_service
from qinglan.rag.client import RagClient
from qinglan.rag.contract import RagRequest
from qinglan.rag.lexical.index import build_index
from qinglan.terminal.progress import progress

UNDER_WAY, DEPTH = 20, 100
"""Searches at a time, and passages of each."""


class Ranking(NamedTuple):
    """The passages of one query, the best first."""

    ids: tuple[str, ...] = ()
    need_score: float = 0.0
    """The first passage's score against people's rewrite; NaN without one."""

    @property
    def scores(self) -> dict[str, float]:
        """The ranking as trec_eval takes one: a higher score is a better rank."""
        return {passage: 1 / rank for rank, passage in enumerate(self.ids, 1)}


Query = tuple[int, str]
"""A row's number, and a text to search for it."""


@contextmanager
def rag_service(knowledge_base: Path, tenant: str, folder: Path) -> Iterator[str]:
    """The service on this corpus, for as long as the block lasts; its index is kept in the folder."""
    build_index(knowledge_base, folder / "index", tenant)
    arguments = ["--kb", f"{tenant}={knowledge_base}", "--index-root", str(folder / "index"), "--port", "0"]
    with run_service("serving.rag", arguments, folder / "logs" / "rag.log") as url:
        yield url


def retrieve_all(dataset: Dataset, queries: Sequence[Query], url: str) -> Mapping[Query, Ranking]:
    """Each different query's ranking, without a threshold."""
    different = list(dict.fromkeys(queries))

    async def search_all() -> dict[Query, Ranking]:
        async with RagClient(url) as rag:
            with progress("retrieval", len(different)) as tick:
                rankings: dict[Query, Ranking] = {}
                async for ranking in map_in_order(different, lambda query: _retrieve(dataset, query, rag), UNDER_WAY):
                    rankings[different[len(rankings)]] = ranking
                    tick()
        return rankings

    return asyncio.run(search_all())


async def _retrieve(dataset: Dataset, query: Query, rag: RagClient) -> Ranking:
    """An empty query finds nothing."""
    row, text = dataset.rows[query[0]], query[1][:LONGEST_QUERY]
    if not text.strip():
        return Ranking(need_score=0.0 if row.need else math.nan)
    request = RagRequest(
        query=row.question[:LONGEST_QUERY], rewritten_query=text, tenant_id=row.tenant_id, top_k=DEPTH,
        score_threshold=0.0, need=row.need[:LONGEST_QUERY] or None,
    )  # fmt: skip
    recall = (await rag.retrieve(request)).data.recall
    if not row.need:
        return Ranking(tuple(hit.id for hit in recall), math.nan)
    return Ranking(tuple(hit.id for hit in recall), recall[0].reranker_score if recall else 0.0)
