"""Settings of one rewriter server."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from qinglan.config import Config, Fraction, Positive


class PayloadConfig(Config):
    """Settings of the stored records of answered questions, for audits."""

    store: str
    """Folder or s3://bucket/prefix of the records; its credentials come from the environment."""

    share: Fraction = 1.0
    """Share of requests that are recorded; a digest of the request's id decides which."""

    text: bool = False
    """True to record the texts; otherwise only their digests are recorded."""


class ServerConfig(Config):
    """Settings of a server with one model."""

    model: Path
    """Folder of the model. If it is part of a release, its files are verified against the release."""

    backend: str = Field(default="transformers", pattern=r"^(transformers|https?://[^/@?#\s]+)$")
    """Backend: `transformers` to run the model in this process, or the base URL of a vLLM server."""

    base: Path | None = None
    """Folder of the base model that vLLM loads under the adapter; it is compared with the release's base model."""

    name: str = Field(default="rewriter", pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")
    """Name of the model in request paths, and of the adapter in vLLM."""

    host: str = "127.0.0.1"
    port: int = Field(default=8080, ge=0, le=65535)
    """Port; 0 takes a free port."""

    queue: Positive = 256
    """Highest number of waiting questions; further requests are refused."""

    deadline_seconds: float = Field(default=10.0, gt=0)
    """Time limit in seconds from a request's first byte to its answer."""

    trust: Path | None = None
    """File of the trust policy for the model's release; with it, a model without a release is refused.

    Without a policy, only a release's digests are compared, and a model without a release is served as unproven."""

    payload_log: PayloadConfig | None = None


RequestProtocol = Literal["v1", "v2", "openai"]
