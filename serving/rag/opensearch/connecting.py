"""The way to an OpenSearch cluster. Who we are there stands in the environment, never in a parameter.

OPENSEARCH_USERNAME, OPENSEARCH_PASSWORD    where it asks for them
SSL_CERT_FILE                               the authority of its certificate, where that is one of your own
"""

import logging
import os
import ssl
from typing import TYPE_CHECKING, Any

from pydantic import Field, field_validator

from qinglan.config import Config
from qinglan.errors import ConfigError

if TYPE_CHECKING:
    from opensearchpy import AsyncOpenSearch, OpenSearch

CONNECTIONS = 64
RETRIES = 2
"""Of a read whose connection broke; all within the deadline of a request."""


class OpenSearchConfig(Config):
    """A cluster, and how long it has for an answer."""

    url: str = Field(pattern=r"^https?://")
    deadline_seconds: float = Field(default=2.0, gt=0)
    """For one search with its retries."""

    @field_validator("url")
    @classmethod
    def _without_secrets(cls, url: str) -> str:
        if "@" in url:
            raise ValueError("no name or password belongs here: set OPENSEARCH_USERNAME and OPENSEARCH_PASSWORD")
        return url.rstrip("/")


def connect(config: OpenSearchConfig) -> "AsyncOpenSearch":
    from opensearchpy import AsyncOpenSearch

    return AsyncOpenSearch(
        timeout=config.deadline_seconds,
        maxsize=CONNECTIONS,
        max_retries=RETRIES,
        retry_on_status=(),
        **_way(config.url),
    )


def connect_to_load(url: str, timeout: float) -> "OpenSearch":
    """Without retries: a load resumes from what is there."""
    from opensearchpy import OpenSearch

    return OpenSearch(timeout=timeout, max_retries=0, retry_on_status=(), **_way(url))


def _way(url: str) -> dict[str, Any]:
    logging.getLogger("opensearch").setLevel(logging.ERROR)  # it logs a line a call; failures are explained by us
    way: dict[str, Any] = {"hosts": [url]}
    if url.startswith("https:"):
        way["ssl_context"] = ssl.create_default_context()
    user, password = os.environ.get("OPENSEARCH_USERNAME", ""), os.environ.get("OPENSEARCH_PASSWORD", "")
    if bool(user) != bool(password):
        raise ConfigError("OPENSEARCH_USERNAME and OPENSEARCH_PASSWORD: one is set and the other is not. Set both.")
    if user:
        way["http_auth"] = (user, password)
    return way
