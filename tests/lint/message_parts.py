"""The parts of a template that are texts of ours, and so must be translated too: {0:t} in the translation.

A part is ours if the code puts a sentence in: written there, joined of several, kept in a name, or returned by a
function of the product.
"""

import ast
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

from tests.lint.syntax_trees import nodes_of

IsProse = Callable[[str], bool]
FOREIGN = frozenset({"str", "repr", "dumps", "read_text", "get", "strftime"})
"""Functions of libraries that have the name of one of ours, or whose texts come from elsewhere."""


class OurTexts:
    """Which expressions of the product are texts that a person reads."""

    def __init__(self, trees: Mapping[Any, ast.AST], is_prose: IsProse) -> None:
        self._is_prose = is_prose
        self._functions: set[str] = set()
        grown = -1
        while grown < len(self._functions):
            grown = len(self._functions)
            for tree in trees.values():
                self._functions |= set(self._prose_functions(tree))

    def _prose_functions(self, tree: ast.AST) -> Iterator[str]:
        for node in _functions(tree):
            if node.name not in FOREIGN:
                names = self.names(node)
                results = (
                    part.value
                    for part in _scope_nodes(node)
                    if isinstance(part, ast.Return | ast.Yield | ast.YieldFrom)
                )
                if any(result is not None and self.is_ours(result, names) for result in results):
                    yield node.name

    def names(self, scope: ast.AST) -> set[str]:
        """The names of a function, or of a module, that hold a text of ours."""
        names: set[str] = set()
        grown = -1
        while grown < len(names):
            grown = len(names)
            for node in _scope_nodes(scope):
                if isinstance(node, ast.ExceptHandler) and node.name:
                    names.add(node.name)
                name, value = _binding(node)
                if name and value is not None and self.is_ours(value, names):
                    names.add(name)
        return names

    def ours_in(self, tree: ast.AST) -> set[ast.expr]:
        """The expressions in the templates of a file that put a text of ours in."""
        shared = self.names(tree)
        scopes = [(tree, shared)]
        scopes += [(node, shared | self.names(node)) for node in _functions(tree)]
        values = (
            (part.value, names)
            for scope, names in scopes
            for node in _scope_nodes(scope)
            if isinstance(node, ast.JoinedStr)
            for part in node.values
            if isinstance(part, ast.FormattedValue)
        )
        return {part for value, names in values for part in _choices(value) if self.is_ours(part, names)}

    def is_ours(self, value: ast.expr, names: set[str]) -> bool:
        match value:
            case ast.Constant(value=str(text)):
                return self._is_prose(text)
            case ast.JoinedStr(values=values):
                words = "".join(str(part.value) if isinstance(part, ast.Constant) else "{0}" for part in values)
                return self._is_prose(words) or any(
                    self.is_ours(part.value, names) for part in values if isinstance(part, ast.FormattedValue)
                )
            case ast.Name(id=name):
                return name in names
            case ast.Attribute(attr="strerror"):
                return True  # libraries.po has the common ones
            case ast.IfExp(body=body, orelse=orelse):
                return self.is_ours(body, names) or self.is_ours(orelse, names)
            case ast.BoolOp(values=values) | ast.List(elts=values) | ast.Tuple(elts=values):
                return any(self.is_ours(part, names) for part in values)
            case ast.Dict(values=values):
                return any(self.is_ours(part, names) for part in values)
            case ast.BinOp(left=left, right=right):
                return self.is_ours(left, names) or self.is_ours(right, names)
            case ast.Subscript(value=inner) | ast.Starred(value=inner) | ast.NamedExpr(value=inner):
                return self.is_ours(inner, names)
            case ast.GeneratorExp(elt=element) | ast.ListComp(elt=element):
                return self.is_ours(element, names)
            case ast.Call(func=ast.Attribute(value=ast.Constant(), attr="join"), args=[inner]):
                return self.is_ours(inner, names)
            case ast.Call(func=ast.Attribute(value=inner, attr="rstrip" | "strip" | "removesuffix" | "lower")):
                return self.is_ours(inner, names)
            case ast.Call(func=ast.Name(id="list" | "sorted" | "tuple" | "filter" | "next"), args=[*_, inner]):
                return self.is_ours(inner, names)
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
                return name in self._functions
        return False


READ = (
    ast.Return, ast.Yield, ast.YieldFrom, ast.ExceptHandler, ast.JoinedStr,
    ast.Assign, ast.AnnAssign, ast.NamedExpr, ast.For, ast.comprehension,
)  # fmt: skip
"""The nodes that are looked at."""


@cache
def _functions(tree: ast.AST) -> list[ast.FunctionDef]:
    return [node for node in nodes_of(tree) if isinstance(node, ast.FunctionDef)]


@cache
def _scope_nodes(scope: ast.AST) -> list[ast.AST]:
    """The nodes of a function that are looked at, without those of the functions in it."""
    inner = [*ast.iter_child_nodes(scope)]
    nodes: list[ast.AST] = []
    while inner:
        node = inner.pop()
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            inner += ast.iter_child_nodes(node)
            if isinstance(node, READ):
                nodes.append(node)
    return nodes


def _binding(node: ast.AST) -> tuple[str, ast.expr | None]:
    """The name that a node gives to a value, and the value, or the values one by one."""
    match node:
        case (
            ast.Assign(targets=[ast.Name(id=name)], value=value)
            | ast.AnnAssign(target=ast.Name(id=name), value=value)
            | ast.NamedExpr(target=ast.Name(id=name), value=value)
            | ast.For(target=ast.Name(id=name), iter=value)
            | ast.comprehension(target=ast.Name(id=name), iter=value)
        ):
            return name, value
    return "", None


def _choices(value: ast.expr) -> Iterator[ast.expr]:
    """The expression, and those that it chooses from."""
    yield value
    match value:
        case ast.IfExp(body=body, orelse=orelse):
            yield from (*_choices(body), *_choices(orelse))
        case ast.BoolOp(values=values):
            for part in values:
                yield from _choices(part)
