"""Settings of one rewriter's server."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from qinglan.config import Config, Fraction, Positive


class PayloadConfig(Config):
    """The records that are stored of answered questions, for audits."""

    store: str
    """A folder or s3://bucket/prefix; its credentials come from the environment."""

    share: Fraction = 1.0
    """Share of requests recorded, chosen by their ids: the same ones wherever an id occurs."""

    text: bool = False
    """The texts too; without it digests alone."""


class ServerConfig(Config):
    """One server of one model."""

    model: Path
    """The model's folder; where it lies in a release, it is checked against that."""

    backend: str = Field(default="transformers", pattern=r"^(transformers|https?://[^/@?#\s]+)$")
    """`transformers`: in this process. Else where a vLLM answers, without a path."""

    base: Path | None = None
    """The base model's folder, which vLLM loads under the release's adapter; compared with what the release names."""

    name: str = Field(default="rewriter", pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")
    """In the paths; at vLLM the adapter's name."""

    host: str = "127.0.0.1"
    port: int = Field(default=8080, ge=0, le=65535)
    """0 takes a free one."""

    queue: Positive = 256
    """Questions that may wait; what would make it more is refused."""

    deadline_seconds: float = Field(default=10.0, gt=0)
    """From a request's first byte to its answer; after it nobody waits any more."""

    trust: Path | None = None
    """The trust policy for the release around the model; a folder without a release is refused then.

    Without it a release's digests are compared, and a bare folder is served as unproven."""

    payload_log: PayloadConfig | None = None


RequestProtocol = Literal["v1", "v2", "openai"]
