"""A tenant's knowledge base on OpenSearch, whichever snapshot its alias names: looked up anew every few seconds."""

import logging
import time
from collections.abc import Sequence

from qinglan.errors import DataError
from qinglan.rag.contract import KnowledgeBase
from serving.rag.engine import Candidate, EngineUnavailable, Scores, SnapshotGone
from serving.rag.opensearch.cluster_client import ClusterClient
from serving.rag.opensearch.engine import OpenSearchEngine
from serving.rag.opensearch.index_layout import IndexMetadata, alias_of
from serving.rag.rerank.lexical_reranker import RerankerModel

ALIAS_TTL_SECONDS = 2.0
"""Seconds for which a switched alias may go unnoticed."""

log = logging.getLogger("serving.rag")


class AliasEngine:
    def __init__(self, cluster: ClusterClient, tenant_id: str, kb_name: str, reranker: RerankerModel) -> None:
        self.calibrated = reranker.calibrated
        self._cluster, self._reranker = cluster, reranker
        self._owner = tenant_id, kb_name
        self._alias = alias_of(tenant_id, kb_name)
        self._read_at = -ALIAS_TTL_SECONDS
        self._engine: OpenSearchEngine | None = None
        self._last_message = ""

    async def current(self, gone: bool = False) -> OpenSearchEngine:
        if gone or self._engine is None or time.monotonic() - self._read_at >= ALIAS_TTL_SECONDS:
            self._read_at = time.monotonic()  # who asks meanwhile need not wait for it, if there is a known one
            await self._refresh()
        if self._engine is None:
            raise EngineUnavailable("not loaded")
        return self._engine

    @property
    def knowledge_base(self) -> KnowledgeBase:
        if self._engine is None:
            raise EngineUnavailable("not loaded")
        return self._engine.knowledge_base

    async def search(self, query: str, k: int) -> list[Candidate]:
        return await (await self.current()).search(query, k)

    async def rerank(self, text: str, candidates: Sequence[Candidate]) -> Scores:
        return await (await self.current()).rerank(text, candidates)

    async def _refresh(self) -> None:
        """Follow the alias; where it cannot be read, or names an index that we may not use, the old snapshot goes on
        answering."""
        try:
            index, notes = read_served_index(*self._owner, await self._cluster.mappings(self._alias))
        except SnapshotGone:
            self._engine = None
            self._say(f"{self._alias}: no such alias. Load it: python -m serving.rag.load")
        except EngineUnavailable as away:
            self._say(f"{self._alias}: {away}")
            if self._engine is None:
                raise
        except DataError as error:
            self._say(str(error))
        else:
            self._serve(index, notes)

    def _serve(self, index: str, notes: IndexMetadata) -> None:
        if self._engine is None or self._engine.index != index:
            self._engine = OpenSearchEngine(self._cluster, index, notes, self._reranker)
        self._say(f"{self._alias}: {notes.passages} passages, snapshot {notes.snapshot[:12]}", logging.INFO)

    def _say(self, what: str, level: int = logging.WARNING) -> None:
        """Once, until there is something else to say."""
        if what != self._last_message:
            log.log(level, "%s", what)
        self._last_message = what


def read_served_index(tenant_id: str, kb_name: str, answer: dict[str, object]) -> tuple[str, IndexMetadata]:
    """The one index that the alias of a knowledge base names, and its notes.

    An alias can be switched by hand: nobody is shown what is not this tenant's.
    """
    alias = alias_of(tenant_id, kb_name)
    if len(answer) != 1:
        raise DataError(f"{alias}: names {len(answer)} indexes of ours, and should name one. Load it again.")
    ((index, mapping),) = answer.items()
    notes = IndexMetadata.read(index, mapping)
    if (notes.tenant_id, notes.kb_name) != (tenant_id, kb_name) or not notes.named(index):
        raise DataError(
            f"{alias}: names {index}, which the loader did not fill for {tenant_id}/{kb_name}; it is not searched. "
            "Load the knowledge base again: python -m serving.rag.load"
        )
    if not notes.whole:
        raise DataError(f"{index}: was not loaded to its end, and {alias} names it. Load it again.")
    return index, notes
