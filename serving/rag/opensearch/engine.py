"""Retrieval on OpenSearch: one snapshot of a knowledge base. live.py follows the alias from one to the next.

The search is over the words of the cjk analyzer. The score is over our own pairs of characters, which the loader
put into a second field: with another cut, weights that were fitted on pairs would be no probabilities. One read
says how common the words and pairs of a text are (`_termvectors`), another finds its best passages. What was read
is kept a while: a snapshot never changes.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

from qinglan.files import sha256_text
from qinglan.rag.contract import KnowledgeBase, Passage
from qinglan.rag.index import CACHED_PASSAGES, MAX_TIED_HITS, QUERY_GRAMS, Hit
from qinglan.rag.knowledge_base import inverse_frequency, searched_text  # fmt: skip
from qinglan.text import bigrams
from serving.rag.engine import Candidate, Scores, SnapshotGone
from serving.rag.lexical_reranker import RIVALS, RerankerModel, WeightedPassage, WeightedText, compute_features
from serving.rag.lru_cache import LruCache
from serving.rag.opensearch.cluster_client import ClusterClient
from serving.rag.opensearch.index_layout import FORMAT, IndexMetadata, alias_of

CACHED_TEXTS = 1024

NO_PARTIAL_RESULTS = {"allow_partial_search_results": "false", "cancel_after_time_interval": "5s"}
"""All of it or an error; and nothing goes on that nobody waits for any more."""


class TermCounts(NamedTuple):
    """A text as one field is cut: how many passages hold each term, and how many terms none holds."""

    known: dict[str, int]
    unknown: int


class TokenizedText(NamedTuple):
    """A text's words, by the analyzer of the index itself, and its pairs."""

    words: TermCounts
    pairs: TermCounts


class StoredPassage(NamedTuple):
    """A passage with what the loader weighed of it: its pairs, and those of its title."""

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
        self._cuts = LruCache[str, TokenizedText](CACHED_TEXTS)
        self._searches = LruCache[tuple[str, str], CachedHits](CACHED_TEXTS)
        self._stored = LruCache[int, StoredPassage](CACHED_PASSAGES)

    async def current(self, gone: bool = False) -> Self:
        return self

    async def search(self, query: str, k: int) -> list[Candidate]:
        hits = await self._best("body", query, k)
        stored = await self._passages([hit.number for hit in hits])
        return [Candidate(hit.number, stored[hit.number].passage) for hit in hits]

    async def rerank(self, text: str, candidates: Sequence[Candidate]) -> Scores:
        pairs = (await self._cut(text)).pairs
        bm25 = dict(await self._best("pairs", text, RIVALS))
        numbers = [candidate.number for candidate in candidates]
        stored = await self._passages([*numbers, *bm25])
        compared = {number: passage.compared for number, passage in stored.items()}
        signs = compute_features(weigh_text(pairs, self.knowledge_base.passages), bm25, compared, numbers)
        return Scores([self._reranker.score(each) for each in signs])

    async def _cut(self, text: str) -> TokenizedText:
        if (cached := self._cuts.get(text)) is not None:
            return cached
        pairs = bigrams(text)
        parameters = {"fields": ["body", "pairs"], "term_statistics": True, "field_statistics": False}
        spared = {"positions": False, "offsets": False, "payloads": False}
        body = {"doc": {"body": text, "pairs": " ".join(pairs)}, **parameters, **spared}
        fields = (await self._read("_termvectors", body)).get("term_vectors", {})
        words = {word: int(term.get("doc_freq", 0)) for word, term in read_terms(fields, "body").items()}
        terms = read_terms(fields, "pairs")
        counts = {pair: int(terms.get(pair, {}).get("doc_freq", 0)) for pair in dict.fromkeys(pairs)}
        return self._cuts.put(text, TokenizedText(split_known(words), split_known(counts)))

    async def _best(self, field: str, text: str, k: int) -> list[Hit]:
        """The k best by BM25, best first; equals stand in the order of the file."""
        cached = self._searches.get((field, text))
        if cached is None or cached.k < k:
            cut = await self._cut(text)
            terms = rarest_terms(cut.words if field == "body" else cut.pairs)
            cached = self._searches.put((field, text), CachedHits(k, await self._search(field, terms, k)))
        return cached.hits[:k]

    async def _search(self, field: str, terms: Sequence[str], k: int) -> list[Hit]:
        if not terms:
            return []
        limit = k + 16
        hits = await self._top(field, terms, limit, with_passages=True)
        while len(hits) == limit and hits[-1].score == hits[k - 1].score and limit < MAX_TIED_HITS:
            limit = min(limit * 4, MAX_TIED_HITS)  # the tie goes on below the cut: see all of it before ordering it
            hits = await self._top(field, terms, limit, with_passages=False)
        return hits[:k]

    async def _top(self, field: str, terms: Sequence[str], limit: int, with_passages: bool) -> list[Hit]:
        # The terms are cut already: what a user typed is never read as a query of its own.
        match = {field: {"query": " ".join(terms), "analyzer": "whitespace"}}
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
    """Those that the knowledge base knows, the rarest when there are too many."""
    known = terms.known
    return sorted(known, key=lambda term: known[term])[:QUERY_GRAMS] if len(known) > QUERY_GRAMS else list(known)


def weigh_text(pairs: TermCounts, passages: int) -> WeightedText:
    known = {pair: inverse_frequency(pairs.known[pair], passages) for pair in rarest_terms(pairs)}
    return WeightedText(known, sum(known.values()) + pairs.unknown * inverse_frequency(0, passages))


def split_known(counts: dict[str, int]) -> TermCounts:
    known = {term: count for term, count in counts.items() if count}
    return TermCounts(known, len(counts) - len(known))


def read_terms(fields: Any, field: str) -> dict[str, dict[str, Any]]:
    return dict(fields.get(field, {}).get("terms", {}))


def read_stored(source: Any) -> StoredPassage:
    passage = Passage.model_validate({name: source[name] for name in Passage.model_fields})
    return StoredPassage(
        passage, WeightedPassage(searched_text(passage).lower(), passage.title.lower(), *source["weights"])
    )
