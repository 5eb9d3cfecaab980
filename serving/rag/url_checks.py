"""Addresses that are given as options hold no password: command lines and logs are read by others."""

from qinglan.errors import ConfigError


def refuse_credentials(option: str, address: str, instead: str) -> None:
    """The refusal does not show the address either."""
    if "@" in address:
        raise ConfigError(f"{option}: no name and no password belong into the URL. {instead}")
