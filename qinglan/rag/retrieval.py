"""One way to retrieve for every stage of a run, so that hits compare and none is asked for twice.

data = (await rag.retrieve(config.request(row.question, query, row.need, row.tenant_id))).data
passages = config.shown(data)
"""

from pydantic import Field

from qinglan.config import Config, Fraction, Name
from qinglan.errors import ConfigError
from qinglan.rag.contract import RagData, RagRequest, RecalledPassage


class RetrievalConfig(Config):
    """How a run retrieves: validation, reward and evaluation get it from `retrieval`, and the shadow has the same."""

    kb_name: Name = "default"
    """The tenant's knowledge base."""

    top_k: int = Field(default=10, ge=10, le=100)
    """Passages retrieved. nDCG@10 and recall@10 need ten."""

    score_threshold: Fraction = 0.5
    """Production's cut, by a passage's score against the query: validation, evaluation and shadow leave out what is
    below it. The reward sees every retrieved passage, so that ranks stay whole. 0 cuts nothing."""

    def request(self, question: str, query: str, need: str, tenant_id: str) -> RagRequest:
        """Ask for whole ranks; each reader cuts the answer as it must."""
        return RagRequest(
            query=question, rewritten_query=query, need=need, tenant_id=tenant_id, kb_name=self.kb_name,
            top_k=self.top_k, score_threshold=0.0,
        )  # fmt: skip

    def shown(self, data: RagData) -> tuple[RecalledPassage, ...]:
        """The passages that production shows."""
        if not self.score_threshold:
            return data.recall
        return tuple(
            passage for passage in data.recall if known_query_score(passage.query_score) >= self.score_threshold
        )


def known_query_score(query_score: float | None) -> float:
    """A passage's score against the query; a ConfigError where the service does not tell."""
    if query_score is None:
        raise ConfigError(
            "The RAG service scores passages against the need and does not send their query_score, which the cut of "
            "production and the reward's seed_v1 go by. Update the service, or set retrieval.score_threshold: 0 and "
            "ppo.reward.mode: anchored_v2."
        )
    return query_score
