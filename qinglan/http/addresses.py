"""Checks addresses in settings: they have http or https, a host, and no part that could hold a key.

Settings are written into runs, journals and statements, and many errors show an address. So a user, a password and a
query are refused when settings are read, before anything is written, and no message repeats them.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator

SCHEMES = ("http://", "https://")
"""Allowed beginnings of addresses, in lower case only. Some clients refuse `HTTP://`, and do so only after a call was
paid for."""

HIDDEN = re.compile(r"[^/\s]*@|(?<=[?#])\S+")
SECRET_FIELD = re.compile(r"api.?key|secret|passw|authorization|bearer|(?<!max_)token$", re.IGNORECASE)


def address_fault(url: str) -> str:
    """Describe the fault of an address; empty if it is valid. The text never repeats the address, which could hold a
    key."""
    try:
        parts = urlsplit(url)
        usable = url.startswith(SCHEMES) and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        usable = False
    if not usable or url != url.strip() or any(sign.isspace() or not sign.isprintable() for sign in url):
        return "no http or https address in small letters, such as https://host:8000"
    if "@" in parts.netloc:
        return "an address holds no user and password. Keys come from the environment"
    if "?" in url or "#" in url:
        return "an address holds no query (?...) and no fragment (#...). Keys come from the environment"
    return ""


def check_address(url: str) -> str:
    if fault := address_fault(url):
        raise ValueError(fault)
    return url


Address = Annotated[str, AfterValidator(check_address)]
"""Type of the address of a service, in any configuration."""


def hide_secrets(text: str) -> str:
    """Replace users, passwords, queries and fragments of addresses in a text by `...`."""
    return HIDDEN.sub("...", text)


def called_addresses(settings: Mapping[str, Any], where: str) -> dict[str, str]:
    """Return every http or https address in a stage's settings, at any depth, by the path of its setting."""
    values = _settings(settings, where)
    return {path: value for path, value in values if isinstance(value, str) and value.lower().startswith(SCHEMES)}


def secret_field(values: Any) -> str:
    """Return the path of the first field, at any depth, whose name says that it holds a secret; empty if there is
    none."""
    return next((path for path, _ in _settings(values, "") if SECRET_FIELD.search(path)), "")


def _settings(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    yield path, value
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _settings(item, f"{path}.{name}".lstrip("."))
    elif isinstance(value, (list, tuple)):
        for number, item in enumerate(value):
            yield from _settings(item, f"{path}[{number}]")
