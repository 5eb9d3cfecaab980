"""Check that a chat template uses only the part of Jinja whose work is bounded. A server runs the template for every
question.

    why = template_fault(text)      # "" for a template whose work is bounded by its conversation

A template is a program. Jinja's sandbox protects files and code, but does not stop it from looping for days or
filling the memory (https://jinja.palletsprojects.com/en/stable/sandbox/). Limits of time and memory while it renders
would refuse single questions, but such a model should be refused as a whole. So the template is parsed, not rendered,
and may hold only what the templates of Qwen, Llama and SmolLM hold:

1. the nodes, filters, methods, tests and functions listed here, and macros that call no macro;
2. loops over the messages or the tools, but not inside each other. Inside such a loop, it may loop over a message's
   tool calls, over a call's arguments, and over values that it has tested not to be a text. No loop runs over a text
   or up to a number in the template, and at most three loops are nested;
3. variables that copy the text of one other variable, once and without lengthening it. Otherwise forty lines that
   double a text would make 2^40 copies of it;
4. at most MAX_KEPT copies of the conversation in all variables together, and at most MAX_PRINTED copies of it in the
   prompt.
"""

from collections.abc import Iterable, Iterator, Set
from functools import lru_cache
from typing import Any

from jinja2 import TemplateError, nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

from qinglan.terminal import visible

MAX_LENGTH, MAX_LOOPS, MAX_CONSTANT = 10_000, 3, 32
"""Largest number of characters of a template, of nested loops, and of characters of an argument. Qwen3.5's template
has 8,057 characters, and its argument '</tool_response>' has 16."""

MAX_KEPT, MAX_PRINTED = 150, 3_000
"""Largest number of copies of the conversation that a template's variables may hold together, and that the template
may print."""

CONVERSATION = frozenset({"messages", "tools", "custom_tools", "builtin_tools"})
"""Names of the lists that a caller passes to the template."""

PARTS = frozenset({"tool_calls"})
"""Keys of a message that hold a list."""

FUNCTIONS = frozenset({"namespace", "range", "raise_exception", "strftime_now"})
METHODS = frozenset({"strip", "lstrip", "rstrip", "split", "startswith", "endswith", "items"})
LENGTHENING = frozenset({"tojson", "join", "string"})
"""Filters whose result can be several times as long as the text."""

FILTERS = LENGTHENING | {"trim", "length", "first", "last", "items", "reject", "safe"}
TESTS = frozenset({
    "string", "mapping", "iterable", "sequence", "defined", "undefined", "none", "true", "false", "boolean",
})  # fmt: skip
NODES = (
    nodes.Template, nodes.Output, nodes.TemplateData, nodes.Name, nodes.NSRef, nodes.Const, nodes.Tuple,
    nodes.Keyword, nodes.Getattr, nodes.Getitem, nodes.Slice, nodes.Call, nodes.Filter, nodes.Test, nodes.If,
    nodes.For, nodes.Assign, nodes.Macro, nodes.CondExpr, nodes.And, nodes.Or, nodes.Not, nodes.Compare,
    nodes.Operand, nodes.Add, nodes.Sub, nodes.Neg, nodes.Concat,
)  # fmt: skip
CONDITIONS = (nodes.Test, nodes.Compare, nodes.Not)
"""Kinds of expressions whose value is true or false."""

UNTRACKED = frozenset({"varargs", "kwargs", "caller", "self", "super"})
"""Special names of Jinja, which are refused because this check does not follow their values."""

Names = Set[str]
Fault = tuple[int, str]


@lru_cache(maxsize=64)
def template_fault(text: str) -> str:
    """Return why a template is invalid or its work has no bound; "" if it is accepted."""
    if len(text) > MAX_LENGTH:
        return f"a chat template of {len(text):,} characters; {MAX_LENGTH:,} are enough for any"
    try:
        template = _Template(ImmutableSandboxedEnvironment().parse(text))
        faults = list(template.foreign_constructs()) or list(template.unbounded_work())
    except (TemplateError, RecursionError, SyntaxError, ValueError) as error:  # the last two for numbers in it
        return f"no chat template whose work has a bound ({visible(str(error)[:80])})"
    return f"line {faults[0][0]} of a chat template {faults[0][1]}, so that its work has no bound" if faults else ""


class _Template:
    """Parsed template. It groups the template's names by the values that they can hold, and finds faults by line."""

    def __init__(self, template: nodes.Template) -> None:
        self.body = template.body
        self.all: list[Any] = list(template.find_all(nodes.Node))
        self.parents: dict[int, Any] = {id(child): node for node in self.all for child in node.iter_child_nodes()}
        self.macros = {node.name: node for node in self._of(nodes.Macro)}
        self.sources = list(self._sources())
        self.items = {name for loop in self._of(nodes.For) for name in _stored([loop.target])}
        spaces = [node.target for node in self._of(nodes.Assign) if _is_call(node.node, "namespace")]
        self.namespaces = set(_stored(spaces))
        targets = [name for name, _, _ in self.sources]
        parameters = {name.name for macro in self.macros.values() for name in macro.args}
        # Names that hold only lists of the caller, or slices of them.
        wholes = {name for name, value, _ in self.sources if not _is_part(value)}
        self.lists = (CONVERSATION | set(targets)) - wholes - self.items - parameters
        # Loop items that the loop narrows once, as in `tool_call = tool_call.function`: they stay one item.
        narrowed = set()
        for name, value, _ in self.sources:
            is_item = name in self.items - self.namespaces
            if is_item and targets.count(name) == 1 and set(_read([value])) <= {name}:
                narrowed.add(name)
        composed = {name for name, value, _ in self.sources if not _is_input(value)}
        self.own_texts = (composed - self.lists - narrowed) | parameters

    def foreign_constructs(self) -> Iterator[Fault]:
        inner = {id(node) for macro in self.macros.values() for node in _all(macro.body)}
        for node in self.all:
            if why := self._construct_fault(node):
                yield node.lineno, why
            if id(node) in inner and (self._calls_macro(node) or isinstance(node, nodes.Macro)):
                yield node.lineno, "has a macro in a macro"
            if self._lengthens(node) and any(map(self._lengthens, _all(node.iter_child_nodes()))):
                yield node.lineno, "lengthens a text that it has lengthened"
        for name, value, line in self.sources:
            if name in CONVERSATION and not _is_part(value):
                yield line, f"gives {name} another meaning"

    def unbounded_work(self) -> Iterator[Fault]:
        yield from self._loop_faults(self.body, frozenset(), 0)
        for _, value, line in self.sources:
            composed = [name for name in _read([value]) if name in self.own_texts]
            if len(composed) > 1:
                yield line, "joins texts of its own"
            if composed and any(map(self._lengthens, _all([value]))):
                yield line, "lengthens a text of its own"
        stored, printed = self._copies()
        if stored > MAX_KEPT or printed > MAX_PRINTED:
            yield 1, f"keeps {stored:,} copies of the conversation and prints {printed:,}"

    def _of(self, kind: type[nodes.Node]) -> list[Any]:
        return [node for node in self.all if isinstance(node, kind)]

    def _sources(self) -> Iterator[tuple[str, Any, int]]:
        """Yield each assignment as variable, expression and line. Values for parameters of macros have an empty
        name."""
        for node in self.all:
            if isinstance(node, nodes.Assign):
                call: Any = node.node
                values = call.kwargs if _is_call(call, "namespace") else [call]
                yield from ((name, value, node.lineno) for name in _stored([node.target]) for value in values)
            if isinstance(node, nodes.Macro):
                yield from (("", default, node.lineno) for default in node.defaults)
            if self._calls_macro(node):
                yield from (("", value, node.lineno) for value in (*node.args, *node.kwargs))

    def _construct_fault(self, node: Any) -> str:
        match node:
            case _ if type(node) not in NODES:
                return f"has a {type(node).__name__}"
            case nodes.For() if node.recursive:
                return "has a loop that calls itself"
            case nodes.Assign(target=nodes.Tuple()):
                return "sets several variables at once"
            case nodes.Tuple() if node.ctx == "load":
                return "makes a list"
            case nodes.Getattr() if node.attr.startswith("_"):
                return f"reads {visible(node.attr)}"
            case nodes.Test() if node.name not in TESTS:
                return f"has the test {visible(node.name)}"
            case nodes.Name():
                return self._name_fault(node)
            case nodes.Filter():
                return self._filter_fault(node)
            case nodes.Call():
                return self._call_fault(node)
        return ""

    def _name_fault(self, node: nodes.Name) -> str:
        used_as_whole = node.ctx == "load" and not isinstance(self.parents.get(id(node)), nodes.Getattr)
        if node.name in UNTRACKED or (node.name in self.namespaces and used_as_whole):
            return f"reads {visible(node.name)}"
        parameter_or_item = node.ctx == "param" or node.name in self.items
        if node.ctx != "load" and (
            node.name in self.macros.keys() | FUNCTIONS or (node.name in CONVERSATION and parameter_or_item)
        ):
            return f"gives {node.name} another meaning"
        return ""

    def _filter_fault(self, node: nodes.Filter) -> str:
        options: dict[str, Any] = {str(option.key): getattr(option.value, "value", None) for option in node.kwargs}
        match node.name:
            case name if name not in FILTERS or node.dyn_args or node.dyn_kwargs:
                return f"has the filter {visible(name)}"
            case "tojson":
                known = options.keys() <= {"indent", "ensure_ascii"} and options.get("indent", 2) in (2, 4)
                return "" if known and not node.args else "indents by any width"
            case "join":
                few = isinstance(node.node, nodes.Filter) and node.node.name == "reject"
                short = len(node.args) == 1 and _is_short(node.args[0]) and not options
                return "" if few and short else "joins by a long text, or the letters of a text"
            case "reject":
                by_value = len(node.args) == 2 and getattr(node.args[0], "value", "") == "equalto"
                of_list = isinstance(node.node, nodes.Name) and node.node.name in self.lists
                return "" if by_value and of_list else "has a filter by its name"
            case "safe":
                return "" if isinstance(node.node, nodes.Filter) and node.node.name == "tojson" else "marks a text"
        return "" if not (node.args or options) else f"has an option of the filter {visible(node.name)}"

    def _call_fault(self, call: Any) -> str:
        plain = not (call.dyn_args or call.dyn_kwargs)
        parent: Any = self.parents.get(id(call))
        if isinstance(call.node, nodes.Getattr):
            name = call.node.attr
            if name not in METHODS or call.kwargs or not plain or not all(map(_is_short, call.args)):
                return f"calls .{visible(name)}() of a text"
            # One word of a split is a text again; the list of them could be looped over, or printed with quotes.
            indexed = isinstance(parent, nodes.Getitem) and not isinstance(parent.arg, nodes.Slice)
            indexed |= isinstance(parent, nodes.Filter) and parent.name in ("first", "last")
            return "makes a list" if name == "split" and not (indexed and parent.node is call) else ""
        name = call.node.name if isinstance(call.node, nodes.Name) else "something without a name"
        if name not in self.macros.keys() | FUNCTIONS or not plain:
            return f"calls {visible(name)}()"
        if name == "range" and not (isinstance(parent, nodes.For) and parent.iter is call):
            return "makes a list"
        if name == "namespace" and (call.args or not (isinstance(parent, nodes.Assign) and parent.node is call)):
            return "makes a list"
        if name == "strftime_now" and not all(isinstance(form, nodes.Const) and _is_date(form) for form in call.args):
            return "writes a date at any width"
        return ""

    def _calls_macro(self, node: nodes.Node) -> bool:
        return isinstance(node, nodes.Call) and isinstance(node.node, nodes.Name) and node.node.name in self.macros

    def _lengthens(self, node: nodes.Node) -> bool:
        return (isinstance(node, nodes.Filter) and node.name in LENGTHENING) or self._calls_macro(node)

    def _loop_faults(self, parts: Iterable[Any], no_texts: Names, around: int) -> Iterator[Fault]:
        """Yield the faults of the loops in parts of the template. `no_texts` are names that hold no text there, and
        `around` is the number of loops around the parts."""
        for node in parts:
            if isinstance(node, nodes.If):
                yield from self._loop_faults(node.body, no_texts, around)
                test: Any = node.test
                branches = [*node.elif_, *node.else_]
                # `{% if x is string %}` has failed in the other branches: x is no text there, unless it is set there.
                failed = isinstance(test, nodes.Test) and test.name == "string" and isinstance(test.node, nodes.Name)
                known = no_texts | ({test.node.name} - set(_stored(branches)) if failed else set())
                yield from self._loop_faults(branches, known, around)
            elif isinstance(node, nodes.Macro):
                yield from self._loop_faults(node.body, frozenset(), 1)
            elif isinstance(node, nodes.For):
                whole = self._is_conversation(node.iter)
                if not whole and not self._is_short_list(node.iter, no_texts):
                    yield node.lineno, "loops over what can be a text or a number"
                if (around and whole) or around == MAX_LOOPS:
                    yield node.lineno, "has loops over the conversation in a loop"
                inside = no_texts - set(_stored([node]))
                yield from self._loop_faults([*node.body, *node.else_], inside, around + 1)
            else:
                yield from self._loop_faults(node.iter_child_nodes(), no_texts, around)

    def _is_conversation(self, node: Any) -> bool:
        """Return True for a list of the caller, a slice of such a list, or the messages' positions counted down."""
        if _is_call(node, "range"):
            # range(ns.last_query_index, -1, -1), as in the first templates of Qwen3
            last, *rest = node.args or [None]
            down = [isinstance(item, nodes.Neg) and getattr(item.node, "value", 0) == 1 for item in rest]
            values = self._values(last) if isinstance(last, nodes.Getattr) and down == [True, True] else []
            return bool(values) and all(map(self._is_position, values))
        if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice):
            node = node.node
        return isinstance(node, nodes.Name) and node.name in self.lists

    def _is_short_list(self, node: Any, no_texts: Names) -> bool:
        match node:
            case nodes.Name():
                return node.name in no_texts
            case nodes.Getattr():
                return node.attr in PARTS
            case nodes.Filter(name="items") | nodes.Call(node=nodes.Getattr(attr="items")):
                return True
        return False

    def _values(self, attribute: nodes.Getattr) -> list[Any]:
        """Return all values that the template assigns to an attribute of a namespace."""
        keywords = [node.value for node in self._of(nodes.Keyword) if node.key == attribute.attr]
        sets = [node for node in self._of(nodes.Assign) if isinstance(node.target, nodes.NSRef)]
        return keywords + [node.node for node in sets if node.target.attr == attribute.attr]

    def _is_position(self, node: Any) -> bool:
        """Return True for a number that cannot be larger than the number of messages."""
        match node:
            case nodes.Const():
                return node.value in (-1, 0, 1)
            case nodes.Sub():
                return self._is_position(node.left) and self._is_position(node.right)
            case nodes.Filter(name="length", node=nodes.Name(name="messages")):
                return True
            case nodes.Getattr(node=nodes.Name(name="loop"), attr="index0"):
                return True
            case nodes.Name():
                values = [value for name, value, _ in self.sources if name == node.name]
                return node.name in self.items or (bool(values) and all(map(self._is_position, values)))
        return False

    def _copies(self) -> tuple[int, int]:
        """Count the copies of the conversation that all variables can hold together, and that are printed."""
        stored = 1
        for node in self._run(self.body):
            if isinstance(node, nodes.Assign):
                stored += len(self._copied([node.node]))
            if self._calls_macro(node):
                stored += len(self._copied([*node.args, *node.kwargs]))
        printed = [part for node in self._run(self.body) if isinstance(node, nodes.Output) for part in node.nodes]
        return stored, sum(stored if name in self.own_texts else 1 for name in self._copied(printed))

    def _run(self, parts: Iterable[Any], skipped: tuple[type[nodes.Node], ...] = ()) -> Iterator[Any]:
        """Yield all nodes that run; the nodes of a macro are repeated for each call of the macro."""
        for node in parts:
            if isinstance(node, (nodes.Macro, *skipped)):
                continue
            yield node
            if self._calls_macro(node):
                yield from self._run(self.macros[node.node.name].body, skipped)
            yield from self._run(node.iter_child_nodes(), skipped)

    def _copied(self, parts: Iterable[Any]) -> list[str]:
        """Return the names whose texts become part of a value, so without names that occur only in a condition."""
        run = self._run(parts, skipped=CONDITIONS)
        return [node.name for node in run if isinstance(node, nodes.Name) and node.ctx == "load"]


def _is_part(value: Any) -> bool:
    """Return True for a list of the caller, a slice of such a list, or the constant `none`."""
    if isinstance(value, nodes.Getitem) and isinstance(value.arg, nodes.Slice):
        value = value.node
    return (isinstance(value, nodes.Name) and value.name in CONVERSATION) or (
        isinstance(value, nodes.Const) and value.value is None
    )


def _is_input(value: Any) -> bool:
    """Return True for a part of the caller's lists, such as the text of a message."""
    while isinstance(value, (nodes.Getattr, nodes.Getitem)):
        value = value.node
    return isinstance(value, nodes.Name) and value.name in CONVERSATION


def _is_call(node: Any, name: str) -> bool:
    return isinstance(node, nodes.Call) and isinstance(node.node, nodes.Name) and node.node.name == name


def _is_short(node: Any) -> bool:
    return isinstance(node, nodes.Const) and len(str(node.value)) <= MAX_CONSTANT


def _is_date(form: nodes.Const) -> bool:
    """Return True if each strftime directive is a single letter, %-d or %-m. All others are refused, because glibc
    also accepts a width, such as %999999d."""
    return all(part[:1].isalpha() or part[:2] in ("-d", "-m", "%") for part in str(form.value).split("%")[1:])


def _stored(parts: Iterable[Any]) -> list[str]:
    """Return the names to which parts of the template assign a value."""
    targets = [node for node in _all(parts) if isinstance(node, (nodes.NSRef, nodes.Name))]
    return [node.name for node in targets if isinstance(node, nodes.NSRef) or node.ctx != "load"]


def _read(parts: Iterable[Any]) -> list[str]:
    return [node.name for node in _all(parts) if isinstance(node, nodes.Name) and node.ctx == "load"]


def _all(parts: Iterable[nodes.Node]) -> Iterator[nodes.Node]:
    for part in parts:
        yield part
        yield from part.find_all(nodes.Node)
