"""Retrieval settings that all stages of a run share, so that hits can be compared and requests cached.

data = (await rag.retrieve(config.request(row.question, query, row.need, row.tenant_id))).data
passages = config.shown(data)
"""

from pydantic import Field

from qinglan.config import Config, Fraction, Name
from qinglan.errors import ConfigError
from qinglan.rag.contract import RagData, RagRequest, RecalledPassage


class RetrievalConfig(Config):
    """Retrieval settings of a run, for validation, reward, evaluation and the shadow."""

    kb_name: Name = "default"
    """Name of the tenant's knowledge base."""

    top_k: int = Field(default=10, ge=10, le=100)
    """Number of passages to retrieve for a query. nDCG@10 and recall@10 need ten."""

    score_threshold: Fraction = 0.5
    """Lowest score against the query at which production shows a passage. Validation, evaluation and shadow leave out
    lower passages; the reward sees every retrieved passage, so that ranks are complete. 0 cuts nothing."""

    def request(self, question: str, query: str, need: str, tenant_id: str) -> RagRequest:
        """Build a request without a score threshold, so that ranks are complete. `shown` applies the threshold to the
        answer."""
        return RagRequest(
            query=question,
            rewritten_query=query,
            need=need,
            tenant_id=tenant_id,
            kb_name=self.kb_name,
            top_k=self.top_k,
            score_threshold=0.0,
        )

    def shown(self, data: RagData) -> tuple[RecalledPassage, ...]:
        """Return the passages that production shows. Passages without a score against the query are included."""
        return tuple(
            passage
            for passage in data.recall
            if passage.query_score is None or passage.query_score >= self.score_threshold
        )


def known_query_score(query_score: float | None) -> float:
    """Return a passage's score against the query; a ConfigError if the service does not send it."""
    if query_score is None:
        raise ConfigError(
            "The RAG service scores passages against the need and does not send their query_score, by which seed_v1 "
            "goes. Let it send query_score, or set ppo.reward.mode: anchored_v2."
        )
    return query_score
