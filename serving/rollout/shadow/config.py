"""What one shadow is told."""

from typing import Self

from pydantic import Field, model_validator

from qinglan.config import Config, Fraction, Name, Positive

VERSION_PATTERN = r"^[0-9a-f]{12}$"


class ModelPair(Config):
    """Two models of one service, and where the canary answers without users."""

    canary: str = Field(pattern=VERSION_PATTERN)
    stable: str = Field(pattern=VERSION_PATTERN)
    url: str = Field(pattern=r"^https?://")
    """The canary's alone: its tag route on a cluster."""


class ShadowConfig(Config):
    """One shadow of one InferenceService."""

    payloads: str = Field(min_length=1)
    """The store of the rewriter's payload log, which must keep texts."""

    rag: str = Field(pattern=r"^https?://")
    """The RAG service that both rewrites are searched in."""

    kb_name: Name = "default"
    top_k: Positive = 5
    score_threshold: Fraction = 0.5
    """As production searches."""

    service: str = ""
    """The InferenceService whose rollout is read from the API server."""

    namespace: str = ""
    """KUBECONFIG's, or the pod's, by default."""

    ingress: str = Field(default="", pattern=r"^(https?://.+)?$")
    """Where the cluster's gateway answers, where the tag route's own host cannot be reached by its name."""

    pair: ModelPair | None = None
    """In place of `service`: without a cluster."""

    judge: str = Field(default="", pattern=r"^(https?://.+)?$")
    """A gateway whose judge compares the rewrites in both orders; else the RAG's reranker scores what they find."""

    model: str = "rewriter"
    """The served model's name, in the path that the canary is asked at."""

    share: Fraction = 0.1
    """Of the questions in the log."""

    deadline_seconds: float = Field(default=10.0, gt=0)
    host: str = "127.0.0.1"
    port: int = Field(default=8090, ge=0, le=65535)

    @model_validator(mode="after")
    def _service_or_pair(self) -> Self:
        if bool(self.service) == bool(self.pair):
            raise ValueError("name the service whose rollout is followed, or one pair of models")
        return self
