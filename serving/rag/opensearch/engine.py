"""Retrieval on OpenSearch: one snapshot of a knowledge base. alias_engine.py follows the alias from one to the next.

Search and score are over our own terms, which the loader put into a field that is cut at spaces: both engines then
know any language alike, and a reranker that was fitted on one fits the other. One read says how common the terms of a
text are (`_termvectors`), another finds its best passages. What was read is kept a while: a snapshot never changes.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

from qinglan.files.files import sha256_text
from qinglan.rag.contract import KnowledgeBase, Passage
from qinglan.rag.knowledge_base import inverse_frequency
from qinglan.rag.lexical.index import CACHED_PASSAGES, MAX_TIED_HITS, MIN_SEARCH_HITS, QUERY_TERMS, Hit
from qinglan.text.text import search_terms
from serving.rag.engine import Candidate, Scores, SnapshotGone
from serving.rag.lru_cache import LruCache
from serving.rag.opensearch.cluster_client import ClusterClient
from serving.rag.opensearch.index_layout import FORMAT, TERMS, IndexMetadata, alias_of
from serving.rag.rerank.lexical_reranker import RIVALS, RerankerModel, WeightedPassage, WeightedText, compute_features

CACHED_TEXTS = 1024

NO_PARTIAL_RESULTS = {"allow_partial_search_results": "false", "cancel_after_time_interval": "5s"}
"""Query parameters: all results or an error, and no search runs on after nobody waits for it."""


class TermCounts(NamedTuple):
    """A text's terms: how many passages hold each, and how many terms none holds."""

    known: dict[str, int]
    unknown: int


class StoredPassage(NamedTuple):
    """A passage with what the loader weighed of it: its terms, and those of its title."""

    passage: Passage
    compared: WeightedPassage


class CachedHits(NamedTuple):
    """A text's best hits, and how many were asked for."""

    k: int
    hits: list[Hit]


class OpenSearchEngine:
    """One snapshot."""

    def __init__(self, cluster: ClusterClient, index: str, notes: IndexMetadata, reranker: RerankerModel) -> None:
        self.knowledge_base = KnowledgeBase(
            tenant_id=notes.tenant_id, kb_name=notes.kb_name, snapshot=notes.snapshot, passages=notes.passages,
            # Scores are near tantivy's and not the same: a cache must not mix the two.
            reranker=sha256_text("opensearch", str(FORMAT), reranker.model_dump_json()),
        )  # fmt: skip
        self.calibrated = reranker.calibrated
        self.index = index
        self._alias = alias_of(notes.tenant_id, notes.kb_name)
        self._cluster, self._reranker = cluster, reranker
        self._cuts = LruCache[str, TermCounts](CACHED_TEXTS)
        self._searches = LruCache[str, CachedHits](CACHED_TEXTS)
        self._stored = LruCache[int, StoredPassage](CACHED_PASSAGES)

    async def current(self, gone: bool = False) -> Self:
        return self

    async def search(self, query: str, k: int) -> list[Candidate]:
        hits = await self._best(query, k)
        stored = await self._passages([hit.number for hit in hits])
        return [Candidate(hit.number, stored[hit.number].passage) for hit in hits]

    async def rerank(self, text: str, candidates: Sequence[Candidate]) -> Scores:
        terms = await self._cut(text)
        bm25 = dict(await self._best(text, RIVALS))
        numbers = [candidate.number for candidate in candidates]
        stored = await self._passages([*numbers, *bm25])
        compared = {number: passage.compared for number, passage in stored.items()}
        signs = compute_features(weigh_text(terms, self.knowledge_base.passages), bm25, compared, numbers)
        return Scores([self._reranker.score(each) for each in signs])

    async def _cut(self, text: str) -> TermCounts:
        if (cached := self._cuts.get(text)) is not None:
            return cached
        terms = search_terms(text)
        parameters = {"fields": [TERMS], "term_statistics": True, "field_statistics": False}
        spared = {"positions": False, "offsets": False, "payloads": False}
        body = {"doc": {TERMS: " ".join(terms)}, **parameters, **spared}
        field = (await self._read("_termvectors", body)).get("term_vectors", {}).get(TERMS, {}).get("terms", {})
        counts = {term: int(field.get(term, {}).get("doc_freq", 0)) for term in dict.fromkeys(terms)}
        known = {term: count for term, count in counts.items() if count}
        return self._cuts.put(text, TermCounts(known, len(counts) - len(known)))

    async def _best(self, text: str, k: int) -> list[Hit]:
        """The k best by BM25, best first; equals stand in the order of the file."""
        cached = self._searches.get(text)
        if cached is None or cached.k < k:
            terms, most = rarest_terms(await self._cut(text)), max(k, MIN_SEARCH_HITS)
            cached = self._searches.put(text, CachedHits(most, await self._search(terms, most)))
        return cached.hits[:k]

    async def _search(self, terms: Sequence[str], k: int) -> list[Hit]:
        if not terms:
            return []
        limit = k + 16
        hits = await self._top(terms, limit, with_passages=True)
        while len(hits) == limit and hits[-1].score == hits[k - 1].score and limit < MAX_TIED_HITS:
            limit = min(limit * 4, MAX_TIED_HITS)  # the tie goes on below the cut: see all of it before ordering it
            hits = await self._top(terms, limit, with_passages=False)
        return hits[:k]

    async def _top(self, terms: Sequence[str], limit: int, with_passages: bool) -> list[Hit]:
        # The terms are cut already: what a user typed is never read as a query of its own.
        match = {TERMS: {"query": " ".join(terms), "analyzer": "whitespace"}}
        body = {"query": {"match": match}, "size": limit, "track_total_hits": False, "_source": with_passages}
        answer = await self._read("_search", body, **NO_PARTIAL_RESULTS)
        documents = answer["hits"]["hits"]
        if with_passages:
            for hit in documents:
                self._keep(hit)
        # A score's last bits depend on the order of the sum; rounded, near-duplicates tie as they should.
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
        number = int(document["_id"])
        return self._stored.get(number) or self._stored.put(number, read_stored(document["_source"]))


def rarest_terms(terms: TermCounts) -> list[str]:
    """The terms that the knowledge base has, the rarest when there are too many."""
    known = terms.known
    return sorted(known, key=lambda term: known[term])[:QUERY_TERMS] if len(known) > QUERY_TERMS else list(known)


def weigh_text(terms: TermCounts, passages: int) -> WeightedText:
    known = {term: inverse_frequency(terms.known[term], passages) for term in rarest_terms(terms)}
    return WeightedText(known, sum(known.values()) + terms.unknown * inverse_frequency(0, passages))


def read_stored(source: Any) -> StoredPassage:
    passage = Passage.model_validate({name: source[name] for name in Passage.model_fields})
    return StoredPassage(passage, WeightedPassage.of(passage, *source["weights"]))
