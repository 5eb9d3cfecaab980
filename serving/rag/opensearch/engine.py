"""Retrieval on OpenSearch: one snapshot of a knowledge base. live.py follows the alias from one to the next.

A search is two reads: how common the query's words are (`_termvectors`), then the search for the rarest of them.
The score needs the same of its own text, and of the passages what the loader weighed. What was read is kept a
while: a snapshot never changes.
"""

import unicodedata
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

from qinglan.files import sha256_text
from qinglan.rag.contract import KnowledgeBase, Passage
from qinglan.rag.index import (
    CACHED_PASSAGES,
    MOST_TIED,
    QUERY_GRAMS,
    Hit,
    inverse_frequency,
    searched_text,
)  # fmt: skip
from serving.rag.engine import Candidate, SnapshotGone
from serving.rag.opensearch.asking import Cluster
from serving.rag.opensearch.kept import Kept
from serving.rag.opensearch.layout import FORMAT, Notes
from serving.rag.reranker import RIVALS, Asked, Compared, Reranker, all_signs

CACHED_TEXTS = 1024

WHOLE = {"allow_partial_search_results": "false", "cancel_after_time_interval": "5s"}
"""All of it or an error; and nothing goes on that nobody waits for any more."""


class Words(NamedTuple):
    """A text as the cjk analyzer cuts it: how many passages hold each word, and how many words none holds."""

    known: dict[str, int]
    unknown: int


class Stored(NamedTuple):
    """A passage with what the loader weighed of it: its words, and those of its title."""

    passage: Passage
    compared: Compared


class Found(NamedTuple):
    """A text's best hits, and how many were asked for."""

    k: int
    hits: list[Hit]


class OpenSearchEngine:
    """One snapshot."""

    def __init__(self, cluster: Cluster, index: str, notes: Notes, reranker: Reranker) -> None:
        self.knowledge_base = KnowledgeBase(
            tenant_id=notes.tenant_id, kb_name=notes.kb_name, snapshot=notes.snapshot, passages=notes.passages,
            # Scores are near tantivy's and not the same: a cache must not mix the two.
            reranker=sha256_text("opensearch", str(FORMAT), reranker.model_dump_json()),
        )  # fmt: skip
        self.calibrated = reranker.calibrated
        self.index = index
        self._cluster, self._reranker = cluster, reranker
        self._words = Kept[str, Words](CACHED_TEXTS)
        self._found = Kept[str, Found](CACHED_TEXTS)
        self._stored = Kept[int, Stored](CACHED_PASSAGES)

    async def current(self, gone: bool = False) -> Self:
        return self

    async def search(self, query: str, k: int) -> list[Candidate]:
        hits = await self._best(query, k)
        stored = await self._passages([hit.number for hit in hits])
        return [Candidate(hit.number, stored[hit.number].passage) for hit in hits]

    async def rerank(self, text: str, candidates: Sequence[Candidate]) -> list[float]:
        asked = self._weighed(await self._cut(text))
        bm25 = dict(await self._best(text, RIVALS))
        numbers = [candidate.number for candidate in candidates]
        stored = await self._passages([*numbers, *bm25])
        compared = {number: one.compared for number, one in stored.items()}
        return [self._reranker.score(signs) for signs in all_signs(asked, bm25, compared, numbers)]

    async def _cut(self, text: str) -> Words:
        """Its words, by the analyzer of the index itself."""
        if (kept := self._words.get(text)) is not None:
            return kept
        wanted = {"fields": ["body"], "term_statistics": True, "field_statistics": False}
        body = {"doc": {"body": text}, "positions": False, "offsets": False, "payloads": False, **wanted}
        answer = await self._cluster.read("POST", f"/{self.index}/_termvectors", body)
        return self._words.put(text, read_words(answer))

    def _weighed(self, words: Words) -> Asked:
        passages = self.knowledge_base.passages
        known = {word: inverse_frequency(words.known[word], passages) for word in rarest(words)}
        return Asked(known, sum(known.values()) + words.unknown * inverse_frequency(0, passages))

    async def _best(self, text: str, k: int) -> list[Hit]:
        """The k best by BM25, best first; equals stand in the order of the file."""
        kept = self._found.get(text)
        if kept is None or kept.k < k:
            kept = self._found.put(text, Found(k, await self._search(rarest(await self._cut(text)), k)))
        return kept.hits[:k]

    async def _search(self, words: Sequence[str], k: int) -> list[Hit]:
        if not words:
            return []
        limit = k + 16
        hits = await self._top(words, limit, with_passages=True)
        while len(hits) == limit and hits[-1].score == hits[k - 1].score and limit < MOST_TIED:
            limit = min(limit * 4, MOST_TIED)  # the tie goes on below the cut: see all of it before ordering it
            hits = await self._top(words, limit, with_passages=False)
        return hits[:k]

    async def _top(self, words: Sequence[str], limit: int, with_passages: bool) -> list[Hit]:
        # The words are cut already: what a user typed is never read as a query of its own.
        match = {"body": {"query": " ".join(words), "analyzer": "whitespace"}}
        body = {"query": {"match": match}, "size": limit, "track_total_hits": False, "_source": with_passages}
        answer = await self._cluster.read("POST", f"/{self.index}/_search", body, **WHOLE)
        found = answer["hits"]["hits"]
        if with_passages:
            for hit in found:
                self._keep(hit)
        # A score's last bits depend on the order of the sum; rounded, near-duplicates tie as they should.
        hits = [Hit(int(hit["_id"]), round(hit["_score"], 4)) for hit in found]
        return sorted(hits, key=lambda hit: (-hit.score, hit.number))

    async def _passages(self, numbers: Sequence[int]) -> dict[int, Stored]:
        found = {number: kept for number in numbers if (kept := self._stored.get(number))}
        if missing := [str(number) for number in dict.fromkeys(numbers) if number not in found]:
            answer = await self._cluster.read("POST", f"/{self.index}/_mget", {"ids": missing})
            if not all(one.get("found") for one in answer["docs"]):
                raise SnapshotGone
            found |= {int(one["_id"]): self._keep(one) for one in answer["docs"]}
        return found

    def _keep(self, document: Any) -> Stored:
        number = int(document["_id"])
        return self._stored.get(number) or self._stored.put(number, read_stored(document["_source"]))


def rarest(words: Words) -> list[str]:
    """Those that the knowledge base knows, the rarest when there are too many."""
    known = words.known
    return sorted(known, key=lambda word: known[word])[:QUERY_GRAMS] if len(known) > QUERY_GRAMS else list(known)


def read_words(answer: Any) -> Words:
    terms = answer.get("term_vectors", {}).get("body", {}).get("terms", {})
    known = {word: int(term["doc_freq"]) for word, term in terms.items() if term.get("doc_freq")}
    return Words(known, len(terms) - len(known))


def read_stored(source: Any) -> Stored:
    passage = Passage.model_validate({name: source[name] for name in Passage.model_fields})
    return Stored(passage, Compared(plain(searched_text(passage)), plain(passage.title), *source["weights"]))


def plain(text: str) -> str:
    """In the width and case that the cjk analyzer gives its words."""
    return unicodedata.normalize("NFKC", text).lower()
