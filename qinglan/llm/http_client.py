"""The one kind of HTTP client that goes to paid models and to the gateway."""

import ssl
from functools import cache

import httpx2

MAX_IDLE_CONNECTIONS = 100


def http_client(timeout: httpx2.Timeout) -> httpx2.AsyncClient:
    """Follows no redirects and trusts no proxy of the environment: it goes where the configuration says."""
    return httpx2.AsyncClient(
        timeout=timeout,
        trust_env=False,
        follow_redirects=False,
        verify=_certificates(),
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=MAX_IDLE_CONNECTIONS),
    )


@cache
def _certificates() -> ssl.SSLContext:
    """Read once: it takes 50 ms."""
    return httpx2.create_ssl_context(trust_env=False)
