"""The work of a chat template, bounded before it is rendered: it runs for every question, in the server.

    why = template_fault(text)      # "" for a template whose work is bounded by its conversation

A template is a program. Jinja's sandbox keeps it from files and code, and not from looping for days or filling the
memory. Here it is parsed and not rendered. It may loop over what it is given, a few loops deep, and put texts
together; it may not count by itself, pad, recurse, or join texts of its own, which forty lines would double to any
length.
"""

from collections.abc import Iterable, Iterator, Sequence, Set
from functools import lru_cache
from typing import Any

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from qinglan.terminal import visible

MAX_LENGTH = 100_000
LIST_LENGTH, MAX_WORK = 30, 10**8
"""Rounds that each loop is taken to have, and steps that a template may then need: four loops in each other."""

FUNCTIONS = frozenset({"namespace", "range", "dict", "raise_exception", "strftime_now"})
METHODS = frozenset({
    "strip", "lstrip", "rstrip", "split", "rsplit", "partition", "startswith", "endswith", "replace", "lower",
    "upper", "title", "capitalize", "find", "items", "keys", "values", "get", "count", "index", "isdigit",
})  # fmt: skip
SHORTENING = frozenset({"length", "count", "int", "float"})
"""Filters whose result holds nothing of a text."""

LENGTHENING = frozenset({"tojson", "join", "string", "escape", "e", "replace", "map"})
"""Filters whose result can be longer than the text by a factor."""

FILTERS = SHORTENING | LENGTHENING | frozenset({
    "trim", "first", "last", "list", "items", "default", "d", "lower", "upper", "title", "capitalize", "select",
    "selectattr", "reject", "rejectattr", "safe", "unique", "sort", "dictsort", "reverse", "abs", "min", "max",
})  # fmt: skip
REFUSED = (
    nodes.Include, nodes.Import, nodes.FromImport, nodes.Extends, nodes.Block, nodes.CallBlock, nodes.FilterBlock,
    nodes.Pow, nodes.Mul,
)  # fmt: skip
SETS = (nodes.Assign, nodes.AssignBlock)
Names = Set[str]


class _Generation(Extension):
    """The block that transformers adds to the language, without what it does."""

    tags = {"generation"}

    def parse(self, parser: Any) -> nodes.Node:
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


@lru_cache(maxsize=64)
def template_fault(text: str) -> str:
    """Why the template is invalid or its work has no bound; "" if neither."""
    if len(text) > MAX_LENGTH:
        return f"a chat template of {len(text):,} characters; {MAX_LENGTH:,} are enough for any"
    environment = ImmutableSandboxedEnvironment(extensions=[_Generation, loopcontrols])
    try:
        template = environment.parse(text)
        macros = {macro.name: macro for macro in template.find_all(nodes.Macro)}
        faults = [*_foreign_constructs(template, set(macros)), *_growing_texts(template, set(macros))]
        if faults:
            return f"line {min(faults)[0]} of a chat template {min(faults)[1]}, so that its work has no bound"
        work = _Work(macros).of(template.body)
    except (TemplateError, RecursionError, SyntaxError, ValueError) as error:  # the last two: of numbers in it
        return f"no chat template whose work has a bound ({visible(str(error)[:80])})"
    return f"a chat template with loops in loops: {work:,} steps" if work > MAX_WORK else ""


def _foreign_constructs(template: nodes.Template, macros: Names) -> Iterator[tuple[int, str]]:
    for node in template.find_all(nodes.Node):
        if isinstance(node, REFUSED) or (isinstance(node, nodes.For) and node.recursive):
            yield node.lineno, f"has a {type(node).__name__}"
        elif isinstance(node, nodes.Mod) and not _is_position(node.left):
            yield node.lineno, "has a % that could format a text to any width"
        elif isinstance(node, nodes.Getattr) and node.attr.startswith("_"):
            yield node.lineno, f"reads {visible(node.attr)}"
        elif isinstance(node, nodes.Filter) and node.name not in FILTERS:
            yield node.lineno, f"has the filter {visible(node.name)}"
        elif isinstance(node, nodes.Call) and (why := _call_fault(node, macros)):
            yield node.lineno, why
        elif isinstance(node, nodes.Name) and node.ctx != "load" and node.name in macros | FUNCTIONS:
            yield node.lineno, f"gives {node.name} another meaning"


def _call_fault(call: nodes.Call, macros: Names) -> str:
    if isinstance(call.node, nodes.Getattr):
        if call.node.attr == "replace":
            texts = [item.value for item in call.args if isinstance(item, nodes.Const)]
            shorter = len(call.args) == len(texts) == 2 and len(str(texts[1])) <= len(str(texts[0]))
            return "" if shorter else "replaces a text by a longer one"
        return "" if call.node.attr in METHODS else f"calls .{visible(call.node.attr)}()"
    name = call.node.name if isinstance(call.node, nodes.Name) else "something without a name"
    if name not in macros | FUNCTIONS:
        return f"calls {visible(name)}()"
    numbers = [item.value for item in call.find_all(nodes.Const) if isinstance(item.value, (int, float))]
    return "counts to a number of its own" if name == "range" and any(abs(number) > 2 for number in numbers) else ""


def _is_position(node: nodes.Node) -> bool:
    """`loop.index`, which is a number whatever the template says, or a sum that begins with it."""
    if isinstance(node, (nodes.Add, nodes.Sub)):
        return _is_position(node.left)
    at = node.node.name if isinstance(node, nodes.Getattr) and isinstance(node.node, nodes.Name) else ""
    return at == "loop" and isinstance(node, nodes.Getattr) and node.attr in ("index", "index0")


def _growing_texts(template: nodes.Template, macros: Names) -> Iterator[tuple[int, str]]:
    """Places where a value that the template made itself enters another of its own more than once, or lengthened."""
    loops, sets = list(template.find_all(nodes.For)), list[Any](template.find_all(SETS))
    loop_names = {name.name for loop in loops for name in _all([loop.target]) if isinstance(name, nodes.Name)}
    named: list[Any] = list(template.find_all((nodes.Name, nodes.NSRef)))
    assigned = {name.name for name in named if getattr(name, "ctx", "") != "load"}
    assigned -= loop_names - {
        name.name for item in sets for name in _all([item.target]) if isinstance(name, nodes.Name)
    }
    for item in sets:
        whole = isinstance(item, nodes.AssignBlock)
        sources = [*item.body, *([item.filter] if item.filter else [])] if whole else [item.node]
        if _joins(sources, assigned) > 1:
            yield item.lineno, "joins texts of its own"
        if any(
            _mentions(sources if whole else [node], assigned) for node in _all(sources) if _lengthens(node, macros)
        ):
            yield item.lineno, "lengthens a text of its own"
    for call in template.find_all(nodes.Call):
        if (
            isinstance(call.node, nodes.Name)
            and call.node.name in macros
            and _joins(call.args, assigned) > len(call.args)
        ):
            yield call.lineno, "joins texts of its own"
    gathered = _gathered(template, sets)
    for loop in loops:
        for inner in _all(loop.body):
            if isinstance(inner, nodes.For) and _mentions([inner.iter], gathered):
                yield inner.lineno, "loops over what a loop gathers"


def _gathered(template: nodes.Template, sets: Sequence[Any]) -> set[str]:
    """Namespaces, which keep their values from round to round, and what is set from them."""
    names = {item.name for item in template.find_all(nodes.NSRef)}
    for _ in sets:
        names |= {
            item.target.name
            for item in sets
            if isinstance(item.target, nodes.Name) and _mentions(list(item.iter_child_nodes()), names)
        }
    return names


def _joins(parts: Iterable[nodes.Node | None], names: Names) -> int:
    """How often values of these names become part of the value of these expressions."""
    return sum(_joined(part, names) for part in parts if part is not None)


def _joined(node: nodes.Node, names: Names) -> int:
    if isinstance(node, (nodes.Compare, nodes.Test, nodes.Not, nodes.Sub, nodes.Mod)):
        return 0
    if isinstance(node, nodes.Filter) and node.name in SHORTENING:
        return 0
    if isinstance(node, nodes.CondExpr):
        return max(_joins([node.expr1], names), _joins([node.expr2], names))
    if isinstance(node, (nodes.And, nodes.Or)):
        return max(_joined(node.left, names), _joined(node.right, names))
    if isinstance(node, nodes.Getitem):
        return _joined(node.node, names)
    if isinstance(node, nodes.Name):
        return int(node.name in names)
    rounds = 2 if isinstance(node, nodes.For) else 1
    return rounds * _joins(node.iter_child_nodes(), names)


def _lengthens(node: nodes.Node, macros: Names) -> bool:
    if isinstance(node, nodes.Call):
        return isinstance(node.node, nodes.Name) and node.node.name in macros
    return isinstance(node, nodes.Filter) and node.name in LENGTHENING


def _mentions(parts: Iterable[nodes.Node], names: Names) -> bool:
    return any(isinstance(node, nodes.Name) and node.name in names for node in _all(parts))


def _names(parts: Iterable[nodes.Node]) -> set[str]:
    return {node.name for node in _all(parts) if isinstance(node, nodes.Name)}


def _all(parts: Iterable[nodes.Node]) -> Iterator[nodes.Node]:
    for part in parts:
        yield part
        yield from part.find_all(nodes.Node)


class _Work:
    """Steps where every loop has LIST_LENGTH rounds; each macro is counted once, and again where it is called."""

    def __init__(self, macros: dict[str, nodes.Macro]) -> None:
        self._macros = macros
        self._steps: dict[str, int | None] = {}

    def of(self, parts: Iterable[nodes.Node]) -> int:
        steps = 0
        for node in parts:
            if isinstance(node, nodes.Macro):
                continue  # counted where it is called
            inside = self.of(node.iter_child_nodes())
            if isinstance(node, nodes.Call) and isinstance(node.node, nodes.Name) and node.node.name in self._macros:
                inside += self._of_macro(node.node.name)
            steps += 1 + inside * (LIST_LENGTH if isinstance(node, nodes.For) else 1)
        return steps

    def _of_macro(self, name: str) -> int:
        """Count a macro's steps; a RecursionError if it calls itself."""
        if name not in self._steps:
            self._steps[name] = None  # it is being counted
            self._steps[name] = self.of(self._macros[name].body)
        if (steps := self._steps[name]) is None:
            raise RecursionError(f"{name} calls itself")
        return steps
