"""Engine whose passages are scored by a reranker service; if the service fails, the engine itself scores them all."""

from collections.abc import Sequence

from qinglan.files.files import sha256_text
from qinglan.rag.calibration import Calibration, are_probabilities
from qinglan.rag.contract import KnowledgeBase
from qinglan.rag.knowledge_base import searched_text
from serving.rag.engine import Candidate, Engine, Scores
from serving.rag.rerank.reranker_client import RerankerClient
from serving.rag.service_client import ServiceError

UNCALIBRATED = "uncalibrated"
"""Fallback reason if raw scores are not probabilities and there is no calibration."""


class RerankedEngine:
    """Engine that searches with another engine, and scores with a reranker service."""

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
        """Score all candidates with the service; if it fails, score all of them with the local engine.

        Scores of two scorers in one list could not be compared.
        """
        if not candidates:
            return Scores([], "service")
        try:
            raw = await self._service.scores(text, [searched_text(candidate.passage) for candidate in candidates])
            return Scores(probabilities(raw, self._calibration), "service")
        except ServiceError as failure:
            scores = await self.local.rerank(text, candidates)
            return scores._replace(fallback_reason=str(failure))


def probabilities(raw: Sequence[float], calibration: Calibration | None) -> list[float]:
    """Convert raw scores to the tenant's probabilities. Without a calibration, raw scores in [0, 1] are returned.

    Raises a ServiceError if the scores are not in [0, 1] but should be.
    """
    if calibration is None:
        if not are_probabilities(raw):
            raise ServiceError(UNCALIBRATED)
        return list(raw)
    if calibration.scale == "probability" and not are_probabilities(raw):
        raise ServiceError("malformed")  # the service's scale changed since the fit
    return [calibration.probability(score) for score in raw]


def local_engine(engine: Engine) -> Engine:
    """Return the local engine of a RerankedEngine; any other engine is returned itself."""
    return engine.local if isinstance(engine, RerankedEngine) else engine
