"""Retrieval on OpenSearch: an engine for one snapshot of a knowledge base, and an engine that follows the alias.

Search and scores use Qinglan's own terms, which the loader wrote into a field that OpenSearch divides only at spaces.
So this engine and the built-in one treat every language alike, and a reranker fitted on one engine fits the other.
One request (`_termvectors`) reads in how many passages each term of a text occurs. Another request finds the best
passages. Answers are cached, because a snapshot never changes.
"""

import logging
import time
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

from qinglan.errors import DataError
from qinglan.files.files import sha256_text
from qinglan.rag.contract import KnowledgeBase, Passage
from qinglan.rag.knowledge_base import inverse_frequency
from qinglan.rag.lexical.index import CACHED_PASSAGES, MAX_TIED_HITS, MIN_SEARCH_HITS, QUERY_TERMS, Hit
from qinglan.text.text import search_terms
from serving.rag.engine import Candidate, EngineUnavailable, SnapshotGone
from serving.rag.lru_cache import LruCache
from serving.rag.opensearch.cluster_client import ClusterClient
from serving.rag.opensearch.index_layout import FORMAT, TERMS, IndexMetadata, alias_of
from serving.rag.rerank.lexical_reranker import RIVALS, RerankerModel, WeightedPassage, WeightedText, compute_features

CACHED_TEXTS = 1024

ALIAS_TTL_SECONDS = 2.0
"""Seconds between two reads of the alias; a switched alias is noticed after at most this time."""

NO_PARTIAL_RESULTS = {"allow_partial_search_results": "false", "cancel_after_time_interval": "5s"}
"""Query parameters that refuse partial results and cancel a search after 5 s, soon after its request has ended."""

log = logging.getLogger("serving.rag")


class TermCounts(NamedTuple):
    """Number of passages with each known term of a text, and number of the text's terms that occur in no passage."""

    known: dict[str, int]
    unknown: int

    def rarest(self) -> list[str]:
        """Return the known terms. If they are too many for one query, return only the rarest."""
        if len(self.known) <= QUERY_TERMS:
            return list(self.known)
        return sorted(self.known, key=self.known.__getitem__)[:QUERY_TERMS]


class StoredPassage(NamedTuple):
    """Passage with the weights that the loader computed for its terms and for its title."""

    passage: Passage
    compared: WeightedPassage


class OpenSearchEngine:
    """Engine over one snapshot of a knowledge base."""

    def __init__(self, cluster: ClusterClient, index: str, notes: IndexMetadata, reranker: RerankerModel) -> None:
        self.knowledge_base = KnowledgeBase(
            tenant_id=notes.tenant_id,
            kb_name=notes.kb_name,
            snapshot=notes.snapshot,
            passages=notes.passages,
            # Scores are close to tantivy's, but not equal, so a cache must not mix the two.
            reranker=sha256_text("opensearch", str(FORMAT), reranker.model_dump_json()),
        )
        self.calibrated = reranker.calibrated
        self.index = index
        self._alias = alias_of(notes.tenant_id, notes.kb_name)
        self._cluster, self._reranker = cluster, reranker
        self._cuts = LruCache[str, TermCounts](CACHED_TEXTS)
        self._searches = LruCache[str, tuple[int, list[Hit]]](CACHED_TEXTS)  # number of requested hits, and the hits
        self._stored = LruCache[int, StoredPassage](CACHED_PASSAGES)

    async def current(self, gone: bool = False) -> Self:
        return self

    async def search(self, query: str, k: int) -> list[Candidate]:
        hits = await self._best(query, k)
        stored = await self._passages([hit.number for hit in hits])
        return [Candidate(hit.number, stored[hit.number].passage) for hit in hits]

    async def rerank(self, text: str, candidates: Sequence[Candidate]) -> list[float]:
        terms = await self._cut(text)
        bm25 = dict(await self._best(text, RIVALS))
        numbers = [candidate.number for candidate in candidates]
        stored = await self._passages([*numbers, *bm25])
        compared = {number: passage.compared for number, passage in stored.items()}
        passages = self.knowledge_base.passages
        weights = {term: inverse_frequency(terms.known[term], passages) for term in terms.rarest()}
        total = sum(weights.values()) + terms.unknown * inverse_frequency(0, passages)
        signs = compute_features(WeightedText(weights, total), bm25, compared, numbers)
        return [self._reranker.score(features) for features in signs]

    async def _cut(self, text: str) -> TermCounts:
        if (cached := self._cuts.get(text)) is not None:
            return cached
        terms = search_terms(text)
        unneeded = dict.fromkeys(("field_statistics", "positions", "offsets", "payloads"), False)
        body = {"doc": {TERMS: " ".join(terms)}, "fields": [TERMS], "term_statistics": True, **unneeded}
        field = (await self._read("_termvectors", body)).get("term_vectors", {}).get(TERMS, {}).get("terms", {})
        counts = {term: int(field.get(term, {}).get("doc_freq", 0)) for term in dict.fromkeys(terms)}
        known = {term: count for term, count in counts.items() if count}
        return self._cuts.put(text, TermCounts(known, len(counts) - len(known)))

    async def _best(self, text: str, k: int) -> list[Hit]:
        """Find the k best passages by BM25, best first. Hits with equal scores keep the order of the file."""
        cached_k, hits = self._searches.get(text) or (0, [])
        if cached_k < k:
            terms, most = (await self._cut(text)).rarest(), max(k, MIN_SEARCH_HITS)
            _, hits = self._searches.put(text, (most, await self._search(terms, most)))
        return hits[:k]

    async def _search(self, terms: Sequence[str], k: int) -> list[Hit]:
        if not terms:
            return []
        limit = k + 16  # a few more than requested, to see if the k-th hit ties with the next ones
        hits = await self._top(terms, limit, with_passages=True)
        while len(hits) == limit and hits[-1].score == hits[k - 1].score and limit < MAX_TIED_HITS:
            limit = min(limit * 4, MAX_TIED_HITS)  # the tie continues below the cut: read all of it before ordering
            hits = await self._top(terms, limit, with_passages=False)
        return hits[:k]

    async def _top(self, terms: Sequence[str], limit: int, with_passages: bool) -> list[Hit]:
        # The terms are cut already, so a user's text is never parsed in a query language.
        match = {TERMS: {"query": " ".join(terms), "analyzer": "whitespace"}}
        body = {"query": {"match": match}, "size": limit, "track_total_hits": False, "_source": with_passages}
        answer = await self._read("_search", body, **NO_PARTIAL_RESULTS)
        documents = answer["hits"]["hits"]
        if with_passages:
            for hit in documents:
                self._keep(hit)
        # Rounded, because a score's last bits depend on the order of the sum, and near-duplicates must get equal
        # scores.
        hits = [Hit(int(hit["_id"]), round(hit["_score"], 4)) for hit in documents]
        return sorted(hits, key=lambda hit: (-hit.score, hit.number))

    async def _passages(self, numbers: Sequence[int]) -> dict[int, StoredPassage]:
        passages = {number: stored for number in numbers if (stored := self._stored.get(number))}
        if missing := [str(number) for number in dict.fromkeys(numbers) if number not in passages]:
            answer = await self._read("_mget", {"ids": missing})
            if not all(document.get("found") for document in answer["docs"]):
                raise SnapshotGone
            passages |= {int(document["_id"]): self._keep(document) for document in answer["docs"]}
        return passages

    async def _read(self, what: str, body: Any, **params: str) -> dict[str, Any]:
        return await self._cluster.read(self._alias, self.index, what, body, **params)

    def _keep(self, document: Any) -> StoredPassage:
        number, source = int(document["_id"]), document["_source"]
        if stored := self._stored.get(number):
            return stored
        passage = Passage.model_validate({name: source[name] for name in Passage.model_fields})
        compared = WeightedPassage.of(passage, *source["weights"])
        return self._stored.put(number, StoredPassage(passage, compared))


class AliasEngine:
    """Engine over a tenant's knowledge base that follows its alias from one snapshot to the next."""

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
            # Set before the read, so that other requests use the known snapshot, if there is one, during the read.
            self._read_at = time.monotonic()
            await self._refresh()
        return self._known()

    @property
    def knowledge_base(self) -> KnowledgeBase:
        return self._known().knowledge_base

    def _known(self) -> OpenSearchEngine:
        if self._engine is None:
            raise EngineUnavailable("not loaded")
        return self._engine

    async def search(self, query: str, k: int) -> list[Candidate]:
        return await (await self.current()).search(query, k)

    async def rerank(self, text: str, candidates: Sequence[Candidate]) -> list[float]:
        return await (await self.current()).rerank(text, candidates)

    async def _refresh(self) -> None:
        """Read the alias. If it cannot be read or names an unusable index, the old snapshot is still searched."""
        try:
            index, notes = read_served_index(*self._owner, await self._cluster.mappings(self._alias))
        except SnapshotGone:
            self._engine = None
            self._log_once(f"{self._alias}: no such alias. Load it: python -m serving.rag.load")
        except EngineUnavailable as away:
            self._log_once(f"{self._alias}: {away}")
            if self._engine is None:
                raise
        except DataError as error:
            self._log_once(str(error))
        else:
            if self._engine is None or self._engine.index != index:
                self._engine = OpenSearchEngine(self._cluster, index, notes, self._reranker)
            snapshot = f"{self._alias}: {notes.passages} passages, snapshot {notes.snapshot[:12]}"
            self._log_once(snapshot, logging.INFO)

    def _log_once(self, message: str, level: int = logging.WARNING) -> None:
        if message != self._last_message:
            log.log(level, "%s", message)
        self._last_message = message


def read_served_index(tenant_id: str, kb_name: str, answer: dict[str, object]) -> tuple[str, IndexMetadata]:
    """Return the name and metadata of the index behind a knowledge base's alias.

    A person can switch an alias by hand. So a DataError is raised unless the alias names exactly one index, complete
    and loaded for this tenant and knowledge base.
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
