"""Allowlist of hosts that may be called: the hosts in QINGLAN_ALLOWED_HOSTS, and this machine itself."""

import ipaddress
import os
from urllib.parse import urlsplit

from qinglan.config import Config
from qinglan.errors import ConfigError
from qinglan.http.addresses import address_fault, called_addresses

ALLOWED_VARIABLE = "QINGLAN_ALLOWED_HOSTS"
PORTS = {"http": 80, "https": 443}


def check_host(url: str, where: str) -> None:
    """Raise a ConfigError unless the URL's host is this machine, or QINGLAN_ALLOWED_HOSTS lists it.

    The variable lists a host as `host` or `host:port`.
    """
    if host := disallowed_host(url, where):
        raise ConfigError(
            f"{where}: host {host!r} is not allowed. "
            f"If it is meant, the operator adds it: {ALLOWED_VARIABLE}={host} (several: separated by commas)."
        )


def check_called_hosts(config: Config, stage: str) -> None:
    """Check every address that a stage's settings name, before the stage does anything."""
    for where, url in called_addresses(config.model_dump(mode="json"), stage).items():
        check_host(url, where)


def disallowed_host(url: str, where: str) -> str:
    """Return the URL's host if it is not allowed, else an empty text. A ConfigError says if the URL is no valid
    address."""
    if fault := address_fault(url):
        raise ConfigError(f"{where}: {fault}.")
    parts = urlsplit(url)
    host, port = str(parts.hostname).rstrip("."), parts.port or PORTS[parts.scheme]
    allowed = {item.strip().lower() for item in os.environ.get(ALLOWED_VARIABLE, "").split(",")}
    return "" if is_loopback(host) or host in allowed or f"{host}:{port}" in allowed else host


def is_local(url: str) -> bool:
    return is_loopback(urlsplit(url).hostname or "")


def is_loopback(host: str) -> bool:
    """True for the name `localhost` and for literal loopback addresses, which cannot be another machine."""
    # No name is resolved here: its answer may be another one when the request is sent (DNS rebinding).
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
