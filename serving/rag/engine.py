"""Interface of a search engine, and the built-in engine. The engine on OpenSearch is in opensearch/engine.py."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol, Self

from qinglan.errors import OutageError, QinglanError
from qinglan.files.files import sha256_text
from qinglan.rag.contract import KnowledgeBase, Passage
from qinglan.rag.lexical.index import Index
from serving.rag.rerank.lexical_reranker import LexicalReranker, RerankerModel


class Candidate(NamedTuple):
    """Retrieved passage; `number` identifies it within its engine."""

    number: int
    passage: Passage


class EngineUnavailable(OutageError):
    """Raised if a search engine gave no complete answer. `reason` is one word, used as a metric's label."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"The search engine gives no answer ({reason}). Ask again in a few seconds.")
        self.reason = reason


class SnapshotGone(QinglanError):
    """Raised if the searched snapshot was deleted; the caller then searches the current snapshot."""


class Engine(Protocol):
    """Search engine over one knowledge base of one tenant."""

    async def current(self, gone: bool = False) -> "Engine":
        """Return the engine of the current snapshot, for one request. `gone`: the last snapshot was deleted."""

    @property
    def knowledge_base(self) -> KnowledgeBase: ...

    @property
    def calibrated(self) -> bool:
        """True if the scores are probabilities for this tenant."""

    async def search(self, query: str, k: int) -> list[Candidate]:
        """Find the k best passages, best first. The same query always gives the same passages."""

    async def rerank(self, text: str, candidates: Sequence[Candidate]) -> list[float]:
        """Score how well each candidate answers `text`, from 0 to 1, in the order of the candidates."""


class TantivyEngine:
    """Engine with an index on disk and the local reranker. A call takes 0.5 ms, so it runs on the event loop."""

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

    async def rerank(self, text: str, candidates: Sequence[Candidate]) -> list[float]:
        return self._scorer.scores(text, [candidate.number for candidate in candidates])
