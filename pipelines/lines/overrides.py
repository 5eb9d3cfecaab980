"""Settings from the command line: `--set gateway.rag.concurrency=10` lays one value over the profile's."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Annotated, Any

import typer

DEFAULT_PROFILE = "demo"
"""Default of --profile for commands that run a tenant on this machine; it pays nothing."""

PAID_PROFILE = "gpt"
"""Default of --profile for commands that plan for larger machines: `fit`, `compile` and `submit`."""

NO_OVERRIDES: Mapping[str, Any] = MappingProxyType({})

SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", help="SETTING=VALUE over the profile's, such as gateway.budget=20; may be repeated."),
]


def with_overrides(settings: Iterable[str] | None, **options: Any) -> dict[str, Any]:
    """Merge the command's other options over the settings of `--set`; an option that is None is left out."""
    from qinglan.config import merge_settings

    named = {name: value for name, value in options.items() if value is not None}
    return merge_settings(parse_overrides(settings or ()), named)


def is_setting(option: str) -> bool:
    """True for a setting of a profile, false for a parameter of a run, which has no dots."""
    return "." in option.partition("=")[0]


def parse_overrides(options: Iterable[str]) -> dict[str, Any]:
    """Parse `a.b=VALUE` options into nested settings; a value is YAML, so that it may be a number or a list."""
    from qinglan.config import merge_settings
    from qinglan.documents import parse_yaml
    from qinglan.errors import ConfigError

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
