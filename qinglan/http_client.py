"""HTTP client for paid models and for the gateway."""

import ssl
from functools import cache

import httpx2

MAX_IDLE_CONNECTIONS = 100


def http_client(timeout: httpx2.Timeout) -> httpx2.AsyncClient:
    """Create a client that follows no redirects and uses no proxy of the environment."""
    return httpx2.AsyncClient(
        timeout=timeout,
        trust_env=False,
        follow_redirects=False,
        verify=_certificates(),
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=MAX_IDLE_CONNECTIONS),
    )


@cache
def _certificates() -> ssl.SSLContext:
    """TLS certificates, loaded once: it takes 50 ms."""
    return httpx2.create_ssl_context(trust_env=False)
