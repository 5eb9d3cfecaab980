"""Refuses keys in addresses that are options, since other people read command lines and logs."""

from qinglan.errors import ConfigError


def refuse_credentials(option: str, address: str, instead: str) -> None:
    """Raise a ConfigError that does not show the address."""
    if set("@?#") & set(address):
        raise ConfigError(f"{option}: no name, no password and no query belong into the URL. {instead}")
