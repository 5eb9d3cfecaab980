"""Every package that our own code imports is named in requirements.in, where it says what it saves."""

import ast
import re
import sys
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parent.parent
OURS = ("qinglan", "components", "serving", "standins", "pipelines", "images", "examples", "benchmarks", "tests")
LISTS = ("requirements.in", "tests/kfp/backend/mlmd.in")
"""The second is of a program that runs in an environment of its own."""

DISTRIBUTIONS = {"google": "protobuf"}
"""Of names that several distributions share."""


def imported_packages() -> dict[str, str]:
    """Each package that is imported anywhere, also inside functions, with a file that does so."""
    result: dict[str, str] = {}
    for path in (path for room in OURS for path in (ROOT / room).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for module in modules_of(node):
                result.setdefault(module.partition(".")[0], str(path.relative_to(ROOT)))
    return {name: path for name, path in result.items() if name not in {*OURS, *sys.stdlib_module_names}}


def modules_of(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module] if isinstance(node, ast.ImportFrom) and node.module and not node.level else []


def named() -> set[str]:
    lines = [line for path in LISTS for line in (ROOT / path).read_text(encoding="utf-8").splitlines()]
    names = (re.split(r"[\[ #<>=]", line, maxsplit=1)[0] for line in lines)
    return {normal(name) for name in names if name}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_every_package_that_is_imported_is_named_with_what_it_saves() -> None:
    known = metadata.packages_distributions()
    requirements = named()

    missing = [
        f"{package}, imported by {path}"
        for package, path in sorted(imported_packages().items())
        if requirements.isdisjoint(map(normal, [DISTRIBUTIONS.get(package, ""), *known.get(package, [package])]))
    ]

    assert missing == []
