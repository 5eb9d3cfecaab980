"""Read from a step's code which modules it imports, also inside functions and in processes that it starts.

Nothing is imported here, since the packages of another image may not be installed on this machine.
"""

import ast
import importlib.util
import re
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("qinglan", "components", "serving", "standins")
OWN_MODULE = re.compile(rf"({'|'.join(PACKAGES)})(\.\w+)+")


def step_names(module: str, body: ast.FunctionDef) -> set[str]:
    """The names that a component's body and its module import: a step imports the whole module."""
    around = [node for node in tree(module).body if isinstance(node, ast.Import | ast.ImportFrom)]
    return set().union(leads_to(module, body), *(leads_to(module, node) for node in around))


@cache
def tree(module: str) -> ast.Module:
    return ast.parse(location(module).read_text(encoding="utf-8"))


def location(module: str) -> Path:
    folder = ROOT.joinpath(*module.split("."))
    return folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")


def imports(module: str, text: ast.AST) -> Iterator[str]:
    """All modules that a part of a module's code imports, and the names that it takes from them."""
    package = module if location(module).name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(text):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            name = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            yield name
            yield from (f"{name}.{alias.name}" for alias in node.names)


def processes(text: ast.AST) -> Iterator[str]:
    """Modules that the code starts as processes: `-m NAME` in a command, or the name of a module of ours."""
    for node in ast.walk(text):
        if isinstance(node, ast.List | ast.Tuple):
            for flag, name in pairwise(node.elts):
                if _word(flag) == "-m" and all(part.isidentifier() for part in _word(name).split(".")):
                    yield _word(name)
        elif OWN_MODULE.fullmatch(_word(node)) and location(_word(node)).is_file():
            yield _word(node)


def _word(node: ast.AST) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def leads_to(module: str, text: ast.AST) -> set[str]:
    started = set(processes(text))
    mains = {f"{name}.__main__" for name in started if name.split(".")[0] in PACKAGES}
    return {*imports(module, text), *started, *mains}


@cache
def _whole_module_leads_to(module: str) -> set[str]:
    return leads_to(module, tree(module))


def reached_modules(names: Iterable[str]) -> set[str]:
    """The modules that these names lead to: modules of ours, and names that are imported from other packages."""
    waiting, modules, outside = sorted(names), set(), set()
    while waiting:
        name = waiting.pop()
        top = name.split(".")[0]
        if top not in PACKAGES:
            outside |= {name} if top not in sys.stdlib_module_names else set()
            continue
        parts = [".".join(name.split(".")[:count]) for count in range(1, name.count(".") + 2)]
        for part in parts:
            if part not in modules and location(part).is_file():
                modules.add(part)
                waiting += _whole_module_leads_to(part)
    return modules | outside
