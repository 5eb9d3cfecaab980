"""Allowlist of hosts that the gateway may call: those that the operator allows, and this machine itself."""

import ipaddress
import os
from urllib.parse import SplitResult, urlsplit

from qinglan.errors import ConfigError

ALLOWED_VARIABLE = "QINGLAN_ALLOWED_HOSTS"
PORTS = {"http": 80, "https": 443}


def check_host(url: str, where: str) -> None:
    """Raise a ConfigError unless the URL's host is this machine, or in the variable as `host` or `host:port`."""
    if host := disallowed_host(url, where):
        raise ConfigError(
            f"{where}: host {host!r} is not allowed. "
            f"If it is meant, the operator adds it: {ALLOWED_VARIABLE}={host} (several: separated by commas)."
        )


def disallowed_host(url: str, where: str) -> str:
    """The URL's host if the allowlist lacks it, else empty; a ConfigError if the URL is no address."""
    parts = _split(url, where)
    host, port = str(parts.hostname).rstrip("."), parts.port or PORTS[parts.scheme]
    allowed = {item.strip().lower() for item in os.environ.get(ALLOWED_VARIABLE, "").split(",")}
    return "" if is_loopback(host) or host in allowed or f"{host}:{port}" in allowed else host


def is_local(url: str) -> bool:
    return is_loopback(urlsplit(url).hostname or "")


def is_loopback(host: str) -> bool:
    """True only for what cannot be another machine: the name localhost, and literal loopback addresses."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _split(url: str, where: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in PORTS and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        usable = False
    if not usable:
        raise ConfigError(f"{where}: {url!r} is no http or https address.")
    if parts.username or parts.password:
        raise ConfigError(f"{where}: an address holds no user and password. Keys come from the environment.")
    return parts
