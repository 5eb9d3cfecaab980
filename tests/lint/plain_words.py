"""Lint for names and docstrings: `python -m tests.lint.plain_words` lists every name and docstring that is not plain.

A name says which thing of the field it is. The words below say nothing, so they are refused as names of modules,
classes, functions, parameters, variables and fields. A docstring begins with a verb or with the thing itself.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PRODUCT = (
    "qinglan",
    "components",
    "serving",
    "standins",
    "pipelines",
    "commands",
    "images",
    "examples",
    "benchmarks",
    "tests",
    "tools",
)

REFUSED = frozenset({
    "one", "ones", "those", "others", "ours", "mine", "theirs", "own", "there", "way", "fate", "fates",
    "asked", "asking", "told", "found", "seen", "look", "looking", "looked", "said", "saying",
    "kept", "given", "wanted", "made", "placed",
})  # fmt: skip
ALLOWED = frozenset({
    "qinglan/lineage/signing/statement.py:made", "qinglan/lineage/trace/walk.py:given",
    "qinglan/lineage/release/release_notes.py:told",
    "pipelines/checks/plan.py:theirs", "pipelines/checks/plan.py:ours",  # keys of `qinglan plan --json`
    "qinglan/reward/config.py:wanted",  # setting reward.style.wanted
    "qinglan/reward/terms/reward_terms.py:kept",  # key of rollouts-*.jsonl and of the trainer's figures
})  # fmt: skip
"""Names in formats that others read: `path:name`."""

OPENINGS = frozenset({"Of", "What", "Where", "Whether", "Who", "Whose", "Whom"})


class Remark(NamedTuple):
    path: str
    line: int
    text: str


def remarks(path: str, source: str) -> Iterator[Remark]:
    """Names and docstrings of a file that the lint refuses."""
    stem = Path(path).stem
    if _is_refused(stem):
        yield Remark(path, 1, f"module {stem!r}: name the thing it holds")
    tree = ast.parse(source)
    for name, line in bound_names(tree):
        if _is_refused(name) and f"{path}:{name}" not in ALLOWED:
            yield Remark(path, line, f"name {name!r}: name the thing")
    for text, line in docstrings(tree):
        if (opening := text.split(maxsplit=1)[0].rstrip(",:;.") if text.split() else "") in OPENINGS:
            yield Remark(path, line, f"docstring begins with {opening!r}: begin with a verb or the thing")


def bound_names(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Every name that the code gives to something, with its line."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name, node.lineno
            case ast.arg():
                yield node.arg, node.lineno
            case ast.Name(ctx=ast.Store()):
                yield node.id, node.lineno
            case ast.Attribute(ctx=ast.Store()):
                yield node.attr, node.lineno
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield name, node.lineno
            case ast.alias(asname=str(name)):
                yield name, node.lineno


def docstrings(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Docstrings of public modules, classes and functions, and the strings below fields and constants."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            public = isinstance(node, ast.Module) or not node.name.startswith("_")
            if public and (text := ast.get_docstring(node)):
                yield text, node.body[0].lineno
            for before, after in zip(node.body, node.body[1:], strict=False):
                if isinstance(before, ast.Assign | ast.AnnAssign) and (text := _text(after)):
                    yield text, after.lineno


def _text(node: ast.stmt) -> str | None:
    match node:
        case ast.Expr(value=ast.Constant(value=str(text))):
            return text
    return None


def _is_refused(name: str) -> bool:
    return name.strip("_").lower() in REFUSED


def main(folders: list[str]) -> int:
    roots = [ROOT / folder for folder in folders or PRODUCT]
    files = [path for root in roots for path in ([root] if root.is_file() else sorted(root.rglob("*.py")))]
    refused = [
        remark for path in files for remark in remarks(path.relative_to(ROOT).as_posix(), path.read_text("utf-8"))
    ]
    for remark in refused:
        print(f"{remark.path}:{remark.line}: {remark.text}")
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
