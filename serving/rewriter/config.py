"""Settings of one rewriter's server."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from qinglan.config import Config, Fraction, Positive


class PayloadConfig(Config):
    """Stored records of answered questions, for audits."""

    store: str
    """Folder or s3://bucket/prefix of the records; its credentials come from the environment."""

    share: Fraction = 1.0
    """Share of requests that are recorded, chosen by a digest of their ids."""

    text: bool = False
    """True to record the texts too; otherwise only their digests."""


class ServerConfig(Config):
    """One server of one model."""

    model: Path
    """Folder of the model; if it is part of a release, it is checked against the release."""

    backend: str = Field(default="transformers", pattern=r"^(transformers|https?://[^/@?#\s]+)$")
    """`transformers` runs the model in this process. Otherwise the base URL of a vLLM server."""

    base: Path | None = None
    """Folder of the base model that vLLM loads under the release's adapter; compared with the release's base."""

    name: str = Field(default="rewriter", pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")
    """Name of the model in the paths, and of the adapter at vLLM."""

    host: str = "127.0.0.1"
    port: int = Field(default=8080, ge=0, le=65535)
    """Port; 0 takes a free one."""

    queue: Positive = 256
    """Questions that may wait; further requests are refused."""

    deadline_seconds: float = Field(default=10.0, gt=0)
    """Seconds from a request's first byte to its answer."""

    trust: Path | None = None
    """File of the trust policy for the release around the model; a folder without a release is refused then.

    Without a policy a release's digests are compared, and a bare folder is served as unproven."""

    payload_log: PayloadConfig | None = None


RequestProtocol = Literal["v1", "v2", "openai"]
