"""Refuse credentials in URLs of the command line, because other people can read command lines and logs."""

from qinglan.errors import ConfigError


def refuse_credentials(option: str, address: str, instead: str) -> None:
    """Raise a ConfigError if the URL has a user name, password or query. The error does not show the URL."""
    if set("@?#") & set(address):
        raise ConfigError(f"{option}: no name, no password and no query belong into the URL. {instead}")
