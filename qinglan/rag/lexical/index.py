"""A knowledge base's search index on disk. It is built once for each digest, and verified when it is opened.

folder = build_index(Path("kb.jsonl"), Path("indexes"), "fivedoctors")    # indexes/fivedoctors/default/<digest>
index = Index.open(folder)
for number, score in index.search("虾青素 每日服用频次", 5):
    print(score, index.passage(number).title)
"""

import mmap
from array import array
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, Self

import orjson

from qinglan.errors import DataError
from qinglan.files.files import first_folder, sha256_file
from qinglan.rag.contract import Passage
from qinglan.rag.knowledge_base import inverse_frequency, searched_text
from qinglan.rag.lexical.index_files import (
    FORMAT,
    OFFSETS,
    PASSAGES,
    SEARCH,
    WEIGHTS,
    Manifest,
    seal_index,
    verify_index,
)
from qinglan.text.text import search_terms

QUERY_TERMS = 128
"""Largest number of a query's terms that are searched. The rarest are taken, so that a pasted page costs no more than
a long question."""

CACHED_PASSAGES = 4096
CACHED_TERMS = 1 << 16
MAX_TIED_HITS = 4096
CACHED_SEARCHES = 256
MIN_SEARCH_HITS = 20
"""Smallest number of hits that a search computes. The service searches a query twice, for its hits and for the
passages that its lexical reranker compares them with; the second time it takes the cached hits."""


class Hit(NamedTuple):
    """A passage by its line number in the knowledge base, from 0, and its BM25 score."""

    number: int
    score: float


def build_index(kb: Path, root: Path, tenant_id: str, kb_name: str = "default") -> Path:
    """Build a knowledge base's index if it does not exist, and return its folder. Several builders at once are
    safe."""
    if not kb.is_file():
        raise DataError(f"{kb}: no such knowledge base. Name a JSONL file: id, title, content, metadata.")
    snapshot = sha256_file(kb)
    folder = root / tenant_id / kb_name / snapshot
    if folder.exists():
        verify_index(folder)
        return folder
    from qinglan.rag.lexical.index_writer import write_index  # it imports numpy, which only a build needs

    with first_folder(folder) as built:
        passages = write_index(kb, built)
        if sha256_file(kb) != snapshot:
            raise DataError(f"{kb}: changed while it was indexed. Start again when no program writes to it.")
        manifest = Manifest(
            format=FORMAT, tenant_id=tenant_id, kb_name=kb_name, snapshot=snapshot, passages=passages, files={}
        )
        seal_index(built, manifest)
    return folder


class Index:
    """One knowledge base, open for reading. Searches from several threads at once are safe."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        import tantivy

        self.folder = folder
        self.manifest = manifest
        self.snapshot = manifest.snapshot
        index = tantivy.Index.open(str(folder / SEARCH))
        index.config_reader(reload_policy="manual")  # the files never change, so no thread needs to watch them
        self._searcher = index.searcher()
        self._schema = index.schema
        with (folder / PASSAGES).open("rb") as file:
            self._lines = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._starts = array("Q", (folder / OFFSETS).read_bytes())
        self._weights = array("d", (folder / WEIGHTS).read_bytes())
        # Number of passages that hold a term, and BM25's weight of a term: high if few passages hold it.
        self.df = lru_cache(CACHED_TERMS)(lambda term: int(self._searcher.doc_freq("body", term)))
        self.idf = lru_cache(CACHED_TERMS)(lambda term: inverse_frequency(self.df(term), len(self)))
        self.passage = lru_cache(CACHED_PASSAGES)(self._passage)
        self._cached_search = lru_cache(CACHED_SEARCHES)(self._search)
        self.terms = lru_cache(CACHED_PASSAGES)(self._terms)

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Open an index that build_index wrote, after checking every byte of it."""
        return cls(folder, verify_index(folder))

    def __len__(self) -> int:
        return self.manifest.passages

    def search(self, query: str, k: int) -> list[Hit]:
        """Return the k best passages by BM25, best first. Passages with equal scores are in the order of the file."""
        return self._cached_search(query, max(k, MIN_SEARCH_HITS))[:k]

    def _search(self, query: str, k: int) -> list[Hit]:
        terms = self.query_terms(query)
        if not terms:
            return []
        limit = k + 16
        hits = self._top(terms, limit)
        while len(hits) == limit and hits[-1].score == hits[k - 1].score and limit < MAX_TIED_HITS:
            limit = min(limit * 4, MAX_TIED_HITS)  # more hits may have the score of the last: fetch all, then sort
            hits = self._top(terms, limit)
        return hits[:k]

    def query_terms(self, query: str) -> list[str]:
        """Return the distinct terms of a query that the knowledge base contains; only the rarest if there are too
        many."""
        terms = [term for term in dict.fromkeys(search_terms(query)) if self.df(term)]
        return sorted(terms, key=self.df)[:QUERY_TERMS] if len(terms) > QUERY_TERMS else terms

    def weight(self, number: int) -> float:
        """Return the sum of the idf of all terms in a passage's title and content."""
        return self._weights[2 * number]

    def title_weight(self, number: int) -> float:
        """Return the sum of the idf of the terms in a passage's title."""
        return self._weights[2 * number + 1]

    def _top(self, terms: list[str], limit: int) -> list[Hit]:
        from tantivy import Occur, Query

        clauses = [(Occur.Should, Query.term_query(self._schema, "body", term, "freq")) for term in terms]
        matches = self._searcher.search(Query.boolean_query(clauses), limit, count=False).hits
        numbers: list[Any] = self._searcher.fast_field_values("number", [address for _, address in matches])
        # The last bits of a score depend on the order of the sum. Scores are rounded, so that near-duplicates tie.
        scores = [round(score, 4) for score, _ in matches]
        return sorted(map(Hit, numbers, scores), key=lambda hit: (-hit.score, hit.number))

    def _passage(self, number: int) -> Passage:
        line = self._lines[self._starts[number] : self._starts[number + 1]]
        return Passage.model_validate(orjson.loads(line))

    def _terms(self, number: int) -> frozenset[str]:
        return frozenset(search_terms(searched_text(self.passage(number))))
