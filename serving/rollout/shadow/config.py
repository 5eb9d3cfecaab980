"""The configuration of a shadow."""

from typing import Literal

from pydantic import Field

from qinglan.config import Config, Fraction
from qinglan.http.addresses import Address
from qinglan.rag.retrieval import RetrievalConfig

VERSION_PATTERN = r"^[0-9a-f]{12}$"


class ModelPair(Config):
    """Two models of one service, and the URL at which the canary answers without users."""

    canary: str = Field(pattern=VERSION_PATTERN)
    stable: str = Field(pattern=VERSION_PATTERN)
    url: Address
    """The canary's tag route."""


class ShadowConfig(Config):
    """One shadow of one InferenceService."""

    payloads: str = Field(min_length=1)
    """The store of the rewriter's payload log, which must keep texts."""

    rag: Address
    """The RAG service that both rewrites are searched in."""

    retrieval: RetrievalConfig = RetrievalConfig()
    """How both rewrites retrieve."""

    service: str = Field(min_length=1)
    """The InferenceService whose rollout is read from the API server."""

    namespace: str = ""
    """The namespace; by default that of the KUBECONFIG or of the pod."""

    ingress: Address | Literal[""] = ""
    """The URL of the cluster's gateway, for clusters in which the tag route's host name does not resolve."""

    judge: Address | Literal[""] = ""
    """The URL of a gateway whose judge compares the rewrites; by default the reranker scores their hits."""

    model: str = "rewriter"
    """The served model's name, in the path of the canary's URL."""

    share: Fraction = 0.1
    """Share of the questions in the log that are compared."""

    deadline_seconds: float = Field(default=10.0, gt=0)
    host: str = "127.0.0.1"
    port: int = Field(default=8090, ge=0, le=65535)
