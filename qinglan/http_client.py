"""HTTP client for paid models and for the gateway."""

import os
import socket
import ssl
import sys
from functools import cache

import httpx2

from qinglan.errors import ConfigError

CA_VARIABLE = "SSL_CERT_FILE"
MAX_IDLE_CONNECTIONS = 100

KEEPALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    (socket.IPPROTO_TCP, getattr(socket, "TCP_KEEPALIVE" if sys.platform == "darwin" else "TCP_KEEPIDLE"), 30),
)
"""A request may wait for an answer without a limit, and where the other machine is lost nothing would ever end that
wait. With these probes it ends as a broken connection, after a minute."""


def http_client(timeout: httpx2.Timeout) -> httpx2.AsyncClient:
    """Create a client that follows no redirects and uses no proxy of the environment."""
    transport = httpx2.AsyncHTTPTransport(
        trust_env=False,
        verify=trusted_certificates(),
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=MAX_IDLE_CONNECTIONS),
        socket_options=KEEPALIVE,
    )
    return httpx2.AsyncClient(timeout=timeout, trust_env=False, follow_redirects=False, transport=transport)


@cache
def trusted_certificates() -> ssl.SSLContext:
    """The public authorities, and those of the file that SSL_CERT_FILE names; loaded once: it takes 50 ms."""
    context = httpx2.create_ssl_context(trust_env=False)
    if path := os.environ.get(CA_VARIABLE):
        try:
            context.load_verify_locations(path)
        except OSError as error:  # ssl.SSLError too
            raise ConfigError(
                f"{CA_VARIABLE}: {path} cannot be read as certificates ({error}). Name a PEM file with your "
                "company's authority, or unset it."
            ) from error
    return context


def certificate_advice(error: BaseException) -> str:
    """The next step where a service's certificate is not trusted; empty for other errors."""
    if "CERTIFICATE_VERIFY_FAILED" not in str(error):
        return ""
    return f" If the certificate is of your company's own authority, name its PEM file in {CA_VARIABLE}."
