"""The repository's code as syntax trees, each parsed once in a process, for the tests that ask what it holds."""

import ast
import gc
from functools import cache
from pathlib import Path


@cache
def parsed(path: Path) -> ast.Module:
    """A file's tree. Trees are not garbage: a collector that visits each new node takes longer than the parser."""
    paused = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(path.read_text(encoding="utf-8"))
    finally:
        if paused:
            gc.enable()


@cache
def nodes_of(tree: ast.AST) -> list[ast.AST]:
    """All nodes of a tree, which several questions go through; `ast.walk` takes as long as the parser."""
    return list(ast.walk(tree))
