"""Settings of a shadow."""

from typing import Literal

from pydantic import Field

from qinglan.config import Config, Fraction
from qinglan.http.addresses import Address
from qinglan.rag.retrieval import RetrievalConfig

VERSION_PATTERN = r"^[0-9a-f]{12}$"


class ModelPair(Config):
    """Versions of a canary and its stable model, and a URL that leads only to the canary."""

    canary: str = Field(pattern=VERSION_PATTERN)
    stable: str = Field(pattern=VERSION_PATTERN)
    url: Address
    """URL of the canary's tag route."""


class ShadowConfig(Config):
    """Settings of the shadow of one InferenceService."""

    payloads: str = Field(min_length=1)
    """Store of the rewriter's payload log, which must record texts."""

    rag: Address
    """URL of the RAG service that searches both rewrites."""

    retrieval: RetrievalConfig = RetrievalConfig()
    """Retrieval settings for both rewrites."""

    service: str = Field(min_length=1)
    """Name of the InferenceService whose rollout is followed."""

    namespace: str = ""
    """Namespace of the InferenceService; by default the namespace of the pod or of KUBECONFIG."""

    ingress: Address | Literal[""] = ""
    """URL of the cluster's gateway, for clusters in which the tag route's host name does not resolve."""

    judge: Address | Literal[""] = ""
    """URL of a gateway whose judge compares the rewrites; if empty, the reranker scores their hits."""

    model: str = "rewriter"
    """Name of the served model in the path of the canary's URL."""

    share: Fraction = 0.1
    """Share of the questions in the log that are compared."""

    deadline_seconds: float = Field(default=10.0, gt=0)
    host: str = "127.0.0.1"
    port: int = Field(default=8090, ge=0, le=65535)
