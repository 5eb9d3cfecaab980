"""The interface of a search engine, and the built-in engine. opensearch/engine.py has the other one."""

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol, Self

from qinglan.errors import OutageError, QinglanError
from qinglan.files.files import sha256_text
from qinglan.rag.contract import KnowledgeBase, Passage
from qinglan.rag.lexical.index import Index
from serving.rag.rerank.lexical_reranker import LexicalReranker, RerankerModel


class Candidate(NamedTuple):
    """A retrieved passage; `number` is the engine's own handle to it."""

    number: int
    passage: Passage


class Scores(NamedTuple):
    """A score in [0, 1] for each candidate, in their order, all by one scorer."""

    values: list[float]
    by: Literal["local", "service"] = "local"
    """`service`: a reranker over HTTP."""

    fallback_reason: str = ""
    """The reason why the configured reranker did not score them."""


class EngineUnavailable(OutageError):
    """A search engine gave no complete answer; `reason` is one word, which becomes a metric's label."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"The search engine gives no answer ({reason}). Ask again in a few seconds.")
        self.reason = reason


class SnapshotGone(QinglanError):
    """The snapshot that an engine searched was deleted: ask the current one."""


class Engine(Protocol):
    """One knowledge base of one tenant."""

    async def current(self, gone: bool = False) -> "Engine":
        """The present snapshot, which one request reads. `gone`: the last snapshot turned out to be deleted."""

    @property
    def knowledge_base(self) -> KnowledgeBase: ...

    @property
    def calibrated(self) -> bool:
        """True if the scores are probabilities for this tenant."""

    async def search(self, query: str, k: int) -> list[Candidate]:
        """The k best passages in the order of production; the same query always gives the same passages."""

    async def rerank(self, text: str, candidates: Sequence[Candidate]) -> Scores:
        """Scores of how well each candidate answers `text`."""


class TantivyEngine:
    """The index on disk and the local reranker: a call is half a millisecond, and stays on the event loop."""

    def __init__(self, index: Index, reranker: RerankerModel) -> None:
        manifest = index.manifest
        self.knowledge_base = KnowledgeBase(
            tenant_id=manifest.tenant_id,
            kb_name=manifest.kb_name,
            snapshot=manifest.snapshot,
            passages=manifest.passages,
            reranker=sha256_text(reranker.model_dump_json()),
        )
        self.calibrated = reranker.calibrated
        self._index = index
        self._scorer = LexicalReranker(index, reranker)

    async def current(self, gone: bool = False) -> Self:
        return self

    async def search(self, query: str, k: int) -> list[Candidate]:
        return [Candidate(hit.number, self._index.passage(hit.number)) for hit in self._index.search(query, k)]

    async def rerank(self, text: str, candidates: Sequence[Candidate]) -> Scores:
        return Scores(self._scorer.scores(text, [candidate.number for candidate in candidates]))
