"""An engine whose passages are scored by a reranker over HTTP; if that fails, by the engine itself, for all
passages."""

from collections.abc import Sequence

from qinglan.files.files import sha256_text
from qinglan.rag.calibration import Calibration, are_probabilities
from qinglan.rag.contract import KnowledgeBase
from qinglan.rag.knowledge_base import searched_text
from serving.rag.engine import Candidate, Engine, Scores
from serving.rag.rerank.reranker_client import RerankerClient
from serving.rag.service_client import ServiceError

UNCALIBRATED = "uncalibrated"
"""The reason if raw scores are not probabilities and there is no calibration."""


class RerankedEngine:
    """Any engine, with the scores of a service."""

    def __init__(self, local: Engine, service: RerankerClient, calibration: Calibration | None) -> None:
        self.local = local
        self.calibrated = calibration is not None and local.calibrated
        self._service, self._calibration = service, calibration

    async def current(self, gone: bool = False) -> "RerankedEngine":
        now = await self.local.current(gone)
        return self if now is self.local else RerankedEngine(now, self._service, self._calibration)

    @property
    def knowledge_base(self) -> KnowledgeBase:
        knowledge_base = self.local.knowledge_base
        fitted = self._calibration.model_dump_json() if self._calibration else ""
        scored_by = self._service.config.scored_by.model_dump_json()
        # Not its address: the same model scores the same elsewhere.
        return knowledge_base.model_copy(update={"reranker": sha256_text(knowledge_base.reranker, scored_by, fitted)})

    async def search(self, query: str, k: int) -> list[Candidate]:
        return await self.local.search(query, k)

    async def rerank(self, text: str, candidates: Sequence[Candidate]) -> Scores:
        """The service's scores, for all candidates or none: scores of two scorers cannot be compared within a
        list."""
        if not candidates:
            return Scores([], "service")
        try:
            raw = await self._service.scores(text, [searched_text(candidate.passage) for candidate in candidates])
            return Scores(probabilities(raw, self._calibration), "service")
        except ServiceError as failure:
            scores = await self.local.rerank(text, candidates)
            return scores._replace(fallback_reason=str(failure))


def probabilities(raw: Sequence[float], calibration: Calibration | None) -> list[float]:
    """This tenant's probabilities for raw scores; without a calibration, the scores themselves if within [0, 1]."""
    if calibration is None:
        if not are_probabilities(raw):
            raise ServiceError(UNCALIBRATED)
        return list(raw)
    if calibration.scale == "probability" and not are_probabilities(raw):
        raise ServiceError("malformed")  # the service's scale changed since the fit
    return [calibration.probability(score) for score in raw]


def local_engine(engine: Engine) -> Engine:
    """The engine without the service before it."""
    return engine.local if isinstance(engine, RerankedEngine) else engine
