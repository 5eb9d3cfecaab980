"""Every package that our own code imports is named in requirements.in, where it says what it saves."""

import ast
import re
import sys
from importlib import metadata
from pathlib import Path

import pytest

from tests.lint.syntax_trees import nodes_of, parsed

ROOT = Path(__file__).parents[2]
FOLDERS = (
    "qinglan",
    "components",
    "serving",
    "standins",
    "pipelines",
    "commands",
    "tools",
    "images",
    "examples",
    "benchmarks",
    "tests",
)
LISTS = ("requirements.in", "tests/kfp/backend/mlmd.in")
"""The second is of a program that runs in an environment of its own."""

DISTRIBUTIONS = {"google": "protobuf"}
"""Distributions of names that several distributions share."""


IMPORT = re.compile(
    r"(?:^|[;:])[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import\b|import[ \t]+([\w. ,\t]+?)[ \t]*(?=$|[;#]))", re.MULTILINE
)
"""All statements that import, and a line of prose that reads as one."""


def possible_imports(text: str) -> set[str]:
    """Names that a file may import; each of those that it imports is among them."""
    lines = text.replace("\\\n", "")
    names = (name for match in IMPORT.finditer(lines) for name in (match[1] or match[2]).split(","))
    return {name.strip().partition(" ")[0].partition(".")[0] for name in names}


def imported_packages() -> dict[str, str]:
    """Each package that is imported anywhere, also inside functions, with a file that does so.

    A file is parsed if it may import something that no file before it did.
    """
    importable = {*FOLDERS, *sys.stdlib_module_names}
    result: dict[str, str] = {}
    for path in (path for room in FOLDERS for path in sorted((ROOT / room).rglob("*.py"))):
        if possible_imports(path.read_text(encoding="utf-8")) - importable - result.keys():
            for node in nodes_of(parsed(path)):
                for module in modules_of(node):
                    result.setdefault(module.partition(".")[0], str(path.relative_to(ROOT)))
    return {name: path for name, path in result.items() if name not in importable}


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


@pytest.mark.slow
def test_every_package_that_is_imported_is_named_with_what_it_saves() -> None:
    known = metadata.packages_distributions()
    requirements = named()

    missing = [
        f"{package}, imported by {path}"
        for package, path in sorted(imported_packages().items())
        if requirements.isdisjoint(map(normal, [DISTRIBUTIONS.get(package, ""), *known.get(package, [package])]))
    ]

    assert missing == []


@pytest.mark.parametrize(
    "text",
    ["import a.b", "import a", "if x:\n    from a.b import (\n        c,\n    )", "import b as c, a as d  # why",
     "x = 1; import a", "try: import a\nexcept ImportError: pass", "import b, \\\n    c, a", "import os; import a"],
)  # fmt: skip
def test_no_import_escapes_the_search_of_a_files_text(text: str) -> None:
    imported = {module.partition(".")[0] for node in ast.walk(ast.parse(text)) for module in modules_of(node)}

    assert "a" in imported and imported <= possible_imports(text)
