"""Address of an OpenSearch cluster, and the options of its clients. Credentials come only from the environment.

OPENSEARCH_USERNAME, OPENSEARCH_PASSWORD    if the cluster requires them
SSL_CERT_FILE                               certificate of your own authority, if it signed the cluster's certificate
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
    from opensearchpy import OpenSearch


class OpenSearchConfig(Config):
    """Settings of a cluster: its address, and the time limit of an answer."""

    url: Address
    deadline_seconds: float = Field(default=2.0, gt=0)
    """Time limit of a search in seconds, retries included."""

    @classmethod
    def read(cls, url: str, deadline_seconds: float | None) -> Self | None:
        """Parse --opensearch and --opensearch-deadline. Returns None without a URL."""
        if not url and deadline_seconds is not None:
            raise ConfigError("--opensearch-deadline: means nothing without --opensearch URL.")
        refuse_credentials("--opensearch", url, "Set OPENSEARCH_USERNAME and OPENSEARCH_PASSWORD instead.")
        values = {"url": url} if deadline_seconds is None else {"url": url, "deadline_seconds": deadline_seconds}
        return parse_as(cls, values, "--opensearch") if url else None


def connect_to_load(config: OpenSearchConfig) -> "OpenSearch":
    """Create a client for loading, without retries, because a load resumes at the first missing passage."""
    from opensearchpy import OpenSearch

    return OpenSearch(max_retries=0, **client_options(config))


def client_options(config: OpenSearchConfig) -> dict[str, Any]:
    logging.getLogger("opensearch").setLevel(logging.ERROR)  # it logs every call; our errors suffice
    options: dict[str, Any] = {"hosts": [config.url], "timeout": config.deadline_seconds, "retry_on_status": ()}
    if config.url.startswith("https:"):
        options["ssl_context"] = ssl.create_default_context()
    user, password = os.environ.get("OPENSEARCH_USERNAME", ""), os.environ.get("OPENSEARCH_PASSWORD", "")
    if bool(user) != bool(password):
        raise ConfigError("OPENSEARCH_USERNAME and OPENSEARCH_PASSWORD: one is set and the other is not. Set both.")
    return options | ({"http_auth": (user, password)} if user else {})
