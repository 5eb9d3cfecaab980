"""Addresses that are given as options hold no key: command lines and logs are read by others."""

from qinglan.errors import ConfigError


def refuse_credentials(option: str, address: str, instead: str) -> None:
    """The refusal does not show the address either."""
    if set("@?#") & set(address):
        raise ConfigError(f"{option}: no name, no password and no query belong into the URL. {instead}")
