"""Settings from the command line: `--set gateway.rag.concurrency=10` lays one value over the profile's."""

from collections.abc import Iterable
from typing import Any

from qinglan.config import merge_settings
from qinglan.documents import parse_yaml
from qinglan.errors import ConfigError


def parse_overrides(options: Iterable[str]) -> dict[str, Any]:
    """Nested settings of `a.b=VALUE` options; a value is YAML, so that numbers and lists may be written."""
    settings: dict[str, Any] = {}
    for option in options:
        path, equals, value = option.partition("=")
        if not (equals and path and all(path.split("."))):
            raise ConfigError(f"--set {option}: write it as SETTING=VALUE, such as --set gateway.budget=20.")
        nested: Any = parse_yaml(value, f"--set {path}")
        for part in reversed(path.split(".")):
            nested = {part: nested}
        settings = merge_settings(settings, nested)
    return settings
