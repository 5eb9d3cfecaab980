"""The part of Jinja that a chat template may use: it runs for every question, in the server.

    why = template_fault(text)      # "" for a template whose work is bounded by its conversation

A template is a program. Jinja's sandbox keeps it from files and code, and not from looping for days or filling the
memory. So it is parsed, not rendered, and may hold what the templates of Qwen, Llama, SmolLM, GLM and DeepSeek hold:

1. the nodes, filters and functions listed here, and macros that call no macro;
2. variables that take another variable's text once, and not lengthened: forty lines that double a text make 2^40;
3. one lengthening step in an expression (a macro, tojson, join): forty of them would do the same;
4. four loops in each other at most, and one of them over a text or a number; inside of that one, only its own item
   is printed or kept: all of a text for each of its letters would be its square.
"""

from collections.abc import Iterable, Iterator, Set
from functools import lru_cache
from typing import Any

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from qinglan.terminal import visible

MAX_LENGTH, MAX_LOOPS = 50_000, 4
"""Characters of a template, and loops in each other. gpt-oss has 16,000 characters."""

FUNCTIONS = frozenset({"namespace", "range", "raise_exception", "strftime_now"})
METHODS = frozenset({
    "strip", "lstrip", "rstrip", "split", "rsplit", "partition", "startswith", "endswith", "replace", "lower",
    "upper", "title", "capitalize", "find", "items", "keys", "values", "get", "count", "index", "isdigit",
})  # fmt: skip
MEASURING = frozenset({"length", "count", "int", "float"})
"""Filters whose result is a number."""

LENGTHENING = frozenset({"tojson", "join", "string"})
"""Filters whose result can be longer than the text by a factor."""

FILTERS = MEASURING | LENGTHENING | frozenset({
    "trim", "first", "last", "list", "items", "default", "d", "lower", "upper", "title", "capitalize", "select",
    "selectattr", "reject", "rejectattr", "safe", "unique", "sort", "dictsort", "reverse", "abs", "min", "max",
    "replace", "map",
})  # fmt: skip
NODES = (
    nodes.Template, nodes.Output, nodes.TemplateData, nodes.Name, nodes.NSRef, nodes.Const, nodes.List, nodes.Tuple,
    nodes.Dict, nodes.Pair, nodes.Keyword, nodes.Getattr, nodes.Getitem, nodes.Slice, nodes.Call, nodes.Filter,
    nodes.Test, nodes.If, nodes.For, nodes.Assign, nodes.AssignBlock, nodes.Macro, nodes.Scope, nodes.CondExpr,
    nodes.And, nodes.Or, nodes.Not, nodes.Compare, nodes.Operand, nodes.Add, nodes.Sub, nodes.Mod, nodes.Neg,
    nodes.Pos, nodes.Concat, nodes.Break, nodes.Continue,
)  # fmt: skip
SHORT_LISTS = frozenset({"tool_calls"})
"""Keys of a message under which the caller puts a list, of some items."""

ENTRIES = frozenset({"items", "keys", "values", "dictsort"})
"""Methods and filters that take a mapping, and fail for a text."""

UNORDERED = frozenset({"varargs", "kwargs", "caller", "self", "super"})
"""Names of Jinja that lead to values past the rules."""

Names = Set[str]
Fault = tuple[int, str]


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
        parsed = _Template(template)
        faults = sorted([*parsed.foreign_constructs(), *parsed.growing_texts()]) or sorted(parsed.deep_loops())
    except (TemplateError, RecursionError, SyntaxError, ValueError) as error:  # the last two: of numbers in it
        return f"no chat template whose work has a bound ({visible(str(error)[:80])})"
    return f"line {faults[0][0]} of a chat template {faults[0][1]}, so that its work has no bound" if faults else ""


class _Template:
    """The names of a template by what they can hold, and its faults by line."""

    def __init__(self, template: nodes.Template) -> None:
        self.all = list(template.find_all(nodes.Node))
        self.body = template.body
        self.macros = {node.name: node for node in self.all if isinstance(node, nodes.Macro)}
        self.sets: list[Any] = [node for node in self.all if isinstance(node, (nodes.Assign, nodes.AssignBlock))]
        self.loops = [node for node in self.all if isinstance(node, nodes.For)]
        self.items = set[str]().union(*(_targets(loop.target) for loop in self.loops))
        self.parameters = {name.name for macro in self.macros.values() for name in macro.args}
        self.assigned = self.parameters.union(*(_targets(item.target) for item in self.sets))
        self.short = self._short_lists()
        self.lists = self._list_names()
        self.template_names = self._names_of_template()
        self.numbers = self._numeric_attributes()

    def foreign_constructs(self) -> Iterator[Fault]:
        for node in self.all:
            if why := self._construct_fault(node):
                yield node.lineno, why

    def growing_texts(self) -> Iterator[Fault]:
        """Places where a value that the template made itself enters another of its own twice, or lengthened."""
        for sources, line in self._assignments():
            if _joins(sources, self.template_names) > 1:
                yield line, "joins texts of its own"
            lengthening = [part for part in _all(sources) if self._lengthens(part)]
            block = [part for part in lengthening if isinstance(part, nodes.Filter) and part.node is None]
            if _mentions(
                sources if block else lengthening, self.template_names
            ):  # the filter of a block takes all of it
                yield line, "lengthens a text of its own"

    def deep_loops(self) -> Iterator[Fault]:
        """Loops in each other whose rounds multiply. No macro calls another one by now."""
        return self._loop_faults(self.body, ())

    def _names_of_template(self) -> set[str]:
        """Names that hold what the template made: variables, parameters, and items of such; no list of the caller."""
        names = self.assigned - self.lists
        rest = list(self.loops)
        while derived := [loop for loop in rest if _mentions([loop.iter], names)]:  # an item of an item, to the last
            names = names.union(*(_targets(loop.target) for loop in derived))
            rest = [loop for loop in rest if loop not in derived]
        return names

    def _assignments(self) -> Iterator[tuple[list[nodes.Node], int]]:
        """What each name of the template takes its value from."""
        for item in self.sets:
            block = isinstance(item, nodes.AssignBlock)
            yield ([*item.body, *([item.filter] if item.filter else [])] if block else [item.node]), item.lineno
        for loop in self.loops:
            yield [loop.iter], loop.lineno
        for macro in self.macros.values():
            for default in macro.defaults:
                yield [default], macro.lineno
        for node in self.all:
            if isinstance(node, nodes.Call) and self._calls_macro(node):
                for value in (*node.args, *(option.value for option in node.kwargs)):
                    yield [value], node.lineno

    def _construct_fault(self, node: nodes.Node) -> str:
        if type(node) not in NODES or (isinstance(node, nodes.For) and node.recursive):
            return f"has a {type(node).__name__}"
        if isinstance(node, nodes.Mod) and not _is_position(node.left):
            return "has a % that could format a text to any width"
        if isinstance(node, nodes.Getattr) and node.attr.startswith("_"):
            return f"reads {visible(node.attr)}"
        if isinstance(node, nodes.Name) and node.name in UNORDERED:
            return f"reads {visible(node.name)}"
        if isinstance(node, nodes.Name) and node.ctx != "load" and node.name in self.macros.keys() | FUNCTIONS:
            return f"gives {node.name} another meaning"
        if isinstance(node, nodes.Filter) and (why := _filter_fault(node)):
            return why
        if isinstance(node, nodes.Macro) and any(map(self._calls_macro, _all(node.body))):
            return "has a macro that calls a macro"
        if isinstance(node, nodes.Macro) and any(isinstance(inner, nodes.Macro) for inner in _all(node.body)):
            return "has a macro in a macro"
        if self._lengthens(node) and any(map(self._lengthens, _all(node.iter_child_nodes()))):
            return "lengthens a text that it has lengthened"
        return self._call_fault(node) if isinstance(node, nodes.Call) else ""

    def _call_fault(self, call: nodes.Call) -> str:
        if isinstance(call.node, nodes.Getattr):
            if call.node.attr == "replace":
                return _replacement_fault(call.args)
            return "" if call.node.attr in METHODS else f"calls .{visible(call.node.attr)}()"
        name = call.node.name if isinstance(call.node, nodes.Name) else "something without a name"
        if name not in self.macros.keys() | FUNCTIONS:
            return f"calls {visible(name)}()"
        constants = [item.value for item in call.find_all(nodes.Const)]
        if name == "range" and any(isinstance(value, (int, float)) and abs(value) > 2 for value in constants):
            return "counts to a number of its own"
        if name == "strftime_now" and not all(
            isinstance(item, nodes.Const) and _is_date(item.value) for item in call.args
        ):
            return "writes a date at any width"
        return ""

    def _calls_macro(self, node: nodes.Node) -> bool:
        return isinstance(node, nodes.Call) and isinstance(node.node, nodes.Name) and node.node.name in self.macros

    def _lengthens(self, node: nodes.Node) -> bool:
        return (isinstance(node, nodes.Filter) and node.name in LENGTHENING) or self._calls_macro(node)

    def _loop_faults(self, parts: Iterable[nodes.Node], around: tuple[nodes.For, ...]) -> Iterator[Fault]:
        """Loops in each other, those of a macro where it is called."""
        for node in parts:
            inside = around
            if isinstance(node, nodes.For):
                inside = (*around, node)
                texts = [loop for loop in inside if not self._is_list(loop.iter)]
                if len(inside) > MAX_LOOPS or len(texts) > 1:
                    yield node.lineno, "has loops in loops over texts or numbers"
                    return
                if texts and (printed := self._printed_names(node.body, texts[0]) - _bound(texts[0])):
                    yield node.lineno, f"prints or keeps {visible(min(printed))} for each item of a text"
            if isinstance(node, nodes.Macro):
                continue  # its loops count where it is called
            if self._calls_macro(node) and isinstance(node, nodes.Call) and isinstance(node.node, nodes.Name):
                yield from self._loop_faults(self.macros[node.node.name].body, inside)
            yield from self._loop_faults(node.iter_child_nodes(), inside)

    def _printed_names(self, body: Iterable[nodes.Node], loop: nodes.For) -> set[str]:
        """Names whose texts a body prints or keeps; a condition and a number print none."""
        items = _targets(loop.target) - _set_names(loop)
        names: set[str] = set()
        for node in _all(body):
            if isinstance(node, nodes.Output):
                names.update(*(self._printed(part, items) for part in node.nodes))
            if isinstance(node, nodes.Assign):
                names.update(self._printed(node.node, items))
            if isinstance(node, nodes.For):
                names.update(self._printed(node.iter, items))
            if self._calls_macro(node):
                names.add("a macro's text")
        return names

    def _printed(self, node: nodes.Node, items: Names) -> Iterator[str]:
        if isinstance(node, nodes.Name):
            yield node.name
        elif isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Name) and node.arg.name in items:
            yield node.arg.name  # messages[index] is another message in each round
        elif isinstance(node, nodes.Call) and isinstance(node.node, nodes.Name):
            for argument in node.args:
                yield from self._printed(argument, items)
        elif not self._is_number(node):
            skipped = node.test if isinstance(node, nodes.CondExpr) else None
            for part in node.iter_child_nodes():
                if part is not skipped:
                    yield from self._printed(part, items)

    def _list_names(self) -> set[str]:
        """Variables that only ever hold a list of the caller, such as all messages but the first."""
        lists, before = self.assigned - self.parameters - self.items, None
        while before != lists:
            before = set(lists)
            for item in self.sets:
                if isinstance(item, nodes.AssignBlock) or not self._is_list(item.node, lists):
                    lists -= _targets(item.target)
        return lists

    def _is_list(self, node: nodes.Node, lists: Names | None = None) -> bool:
        """True if a loop over this has a few rounds: over a variable of the caller, a part of it, or a mapping."""
        lists = self.lists if lists is None else lists
        if isinstance(node, nodes.Name):
            return node.name in lists or not (node.name in self.assigned or node.name in self.items)
        if isinstance(node, nodes.Getitem):
            if isinstance(node.arg, nodes.Slice):
                return self._is_list(node.node, lists)
            return isinstance(node.arg, nodes.Const) and node.arg.value in self.short
        if isinstance(node, nodes.Getattr):
            return node.attr in self.short
        if isinstance(node, nodes.Filter) and node.node is not None:
            narrowed = node.name in ("select", "selectattr", "reject", "rejectattr", "list", "reverse", "map")
            return node.name in ENTRIES or (narrowed and self._is_list(node.node, lists))
        if isinstance(node, nodes.Call) and isinstance(node.node, nodes.Getattr):
            return node.node.attr in ENTRIES
        if isinstance(node, (nodes.Or, nodes.And)):
            return self._is_list(node.left, lists) and self._is_list(node.right, lists)
        empty = isinstance(node, nodes.List) and not node.items
        return empty or (isinstance(node, nodes.Const) and node.value is None)

    def _short_lists(self) -> Names:
        """Keys that hold a short list, unless the template itself writes mappings or sets such an attribute."""
        keys = {node.key for node in self.all if isinstance(node, nodes.Keyword)}
        keys |= {node.attr for node in self.all if isinstance(node, nodes.NSRef)}
        return frozenset() if any(isinstance(node, nodes.Dict) for node in self.all) else SHORT_LISTS - keys

    def _numeric_attributes(self) -> set[str]:
        """Attributes of namespaces that are numbers in every place that sets them."""
        values = [(item.target.attr, item.node) for item in self.sets if isinstance(item.target, nodes.NSRef)
                  and isinstance(item, nodes.Assign)]  # fmt: skip
        values += [(node.key, node.value) for node in self.all if isinstance(node, nodes.Keyword)]
        self.numbers = {attribute for attribute, _ in values}
        while texts := {name for name, value in values if name in self.numbers and not self._is_number(value)}:
            self.numbers -= texts
        return self.numbers

    def _is_number(self, node: nodes.Node) -> bool:
        if isinstance(node, nodes.Const):
            return not isinstance(node.value, str)
        if isinstance(node, nodes.Getattr) and isinstance(node.node, nodes.Name):
            return node.node.name == "loop" or node.attr in self.numbers
        if isinstance(node, (nodes.Add, nodes.Sub)):
            return self._is_number(node.left) and self._is_number(node.right)
        measured = isinstance(node, nodes.Filter) and node.name in MEASURING
        return measured or isinstance(node, (nodes.Compare, nodes.Test, nodes.Not))


def _filter_fault(node: nodes.Filter) -> str:
    if node.name not in FILTERS:
        return f"has the filter {visible(node.name)}"
    options: dict[str, Any] = {str(option.key): getattr(option.value, "value", None) for option in node.kwargs}
    if node.name == "replace":
        return _replacement_fault(node.args)
    if node.name == "map" and (node.args or options.keys() - {"attribute", "default"}):
        return "has a filter by its name"
    if node.name == "tojson" and (node.args or ("indent" in options and options["indent"] not in (2, 4))):
        return "indents by any width"
    return ""


def _replacement_fault(arguments: Iterable[nodes.Node]) -> str:
    """A replacement may not be longer than what it replaces; an empty text is everywhere between letters."""
    texts = [str(item.value) for item in arguments if isinstance(item, nodes.Const)]
    shorter = len(texts) == 2 and len(list(arguments)) == 2 and texts[0] and len(texts[1]) <= len(texts[0])
    return "" if shorter else "replaces a text by a longer one"


def _is_date(form: Any) -> bool:
    """True if each directive of strftime is one letter: glibc also takes a width, as in %999999d."""
    return all(part[:1].isalpha() or part[:2] in ("-d", "-m", "%") for part in str(form).split("%")[1:])


def _is_position(node: nodes.Node) -> bool:
    """`loop.index`, which is a number whatever the template says, or a sum that begins with it."""
    if isinstance(node, (nodes.Add, nodes.Sub)):
        return _is_position(node.left)
    at = node.node.name if isinstance(node, nodes.Getattr) and isinstance(node.node, nodes.Name) else ""
    return at == "loop" and isinstance(node, nodes.Getattr) and node.attr in ("index", "index0")


def _targets(target: nodes.Node) -> set[str]:
    """Names that an assignment or a loop binds."""
    return {node.name for node in _all([target]) if isinstance(node, (nodes.Name, nodes.NSRef))}


def _set_names(loop: nodes.For) -> set[str]:
    """Variables that a loop's body sets."""
    sets = loop.find_all(nodes.Assign)
    return {item.target.name for item in sets if isinstance(item.target, nodes.Name)}


def _bound(loop: nodes.For) -> set[str]:
    """Names whose values come from a loop's items."""
    inner = (_targets(node.target) for node in _all([loop]) if isinstance(node, nodes.For))
    return {"loop"}.union(_set_names(loop), *inner)


def _joins(parts: Iterable[nodes.Node | None], names: Names) -> int:
    """How often values of these names become part of the value of these expressions."""
    return sum(_joined(part, names) for part in parts if part is not None)


def _joined(node: nodes.Node, names: Names) -> int:
    if isinstance(node, (nodes.Compare, nodes.Test, nodes.Not, nodes.Sub, nodes.Mod)):
        return 0
    if isinstance(node, nodes.Filter) and node.name in MEASURING:
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


def _mentions(parts: Iterable[nodes.Node], names: Names) -> bool:
    return any(isinstance(node, nodes.Name) and node.name in names for node in _all(parts))


def _all(parts: Iterable[nodes.Node]) -> Iterator[nodes.Node]:
    for part in parts:
        yield part
        yield from part.find_all(nodes.Node)
