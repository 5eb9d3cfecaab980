"""The way to an OpenSearch cluster. Who we are there stands in the environment, never in a parameter.

OPENSEARCH_USERNAME, OPENSEARCH_PASSWORD    where it asks for them
SSL_CERT_FILE                               the authority of its certificate, where that is one of your own
"""

import logging
import os
import ssl
from typing import TYPE_CHECKING, Any, Self

from pydantic import Field

from qinglan.config import Config, parse_as
from qinglan.errors import ConfigError
from qinglan.http.addresses import Address
from serving.rag.url_checks import refuse_credentials

if TYPE_CHECKING:
    from opensearchpy import AsyncOpenSearch, OpenSearch

CONNECTIONS = 64
RETRIES = 2
"""Tries again of a read whose connection broke, all within the deadline of a request."""


class OpenSearchConfig(Config):
    """A cluster, and how long it has for an answer."""

    url: Address
    deadline_seconds: float = Field(default=2.0, gt=0)
    """Time limit of a search with its retries."""

    @classmethod
    def read(cls, url: str, deadline_seconds: float | None) -> Self | None:
        """--opensearch and the option that goes with it."""
        if not url and deadline_seconds is not None:
            raise ConfigError("--opensearch-deadline: means nothing without --opensearch URL.")
        refuse_credentials("--opensearch", url, "Set OPENSEARCH_USERNAME and OPENSEARCH_PASSWORD instead.")
        arguments = {} if deadline_seconds is None else {"deadline_seconds": deadline_seconds}
        return parse_as(cls, {"url": url, **arguments}, "--opensearch") if url else None


def connect(config: OpenSearchConfig) -> "AsyncOpenSearch":
    from opensearchpy import AsyncOpenSearch

    return AsyncOpenSearch(
        timeout=config.deadline_seconds,
        maxsize=CONNECTIONS,
        max_retries=RETRIES,
        retry_on_status=(),
        **_client_options(config.url),
    )


def connect_to_load(config: OpenSearchConfig) -> "OpenSearch":
    """Connect without retries: a load resumes from what is there."""
    from opensearchpy import OpenSearch

    return OpenSearch(
        timeout=config.deadline_seconds, max_retries=0, retry_on_status=(), **_client_options(config.url)
    )


def _client_options(url: str) -> dict[str, Any]:
    logging.getLogger("opensearch").setLevel(logging.ERROR)  # it logs a line a call; failures are explained by us
    options: dict[str, Any] = {"hosts": [url]}
    if url.startswith("https:"):
        options["ssl_context"] = ssl.create_default_context()
    user, password = os.environ.get("OPENSEARCH_USERNAME", ""), os.environ.get("OPENSEARCH_PASSWORD", "")
    if bool(user) != bool(password):
        raise ConfigError("OPENSEARCH_USERNAME and OPENSEARCH_PASSWORD: one is set and the other is not. Set both.")
    if user:
        options["http_auth"] = (user, password)
    return options
