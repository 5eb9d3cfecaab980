"""The English texts that a person reads, as templates, and what the catalogue lacks: `python -m tests.lint.messages`.

Templates are read from the code: every literal that is a sentence or a part of one, the help of every command, and
the words of pages. `{0}` stands for what the code puts in, `{0:n}` for a number. A choice between two texts inside of
a template makes two templates.
"""

import ast
import json
import re
import sys
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any

from qinglan.messages import chinese
from qinglan.messages.catalogue import MARK, SLOT
from qinglan.messages.po import read_po
from tests.lint.syntax_trees import nodes_of, parsed

ROOT = Path(__file__).parents[2]
CATALOGUE = ROOT / "qinglan" / "messages" / "zh"

PROSE = re.compile(r"[A-Za-z]{2,}[,.:;)'\"`]* ['\"`(]*[A-Za-z{]|\{[,:;)]? [a-z]{2,}")
"""Two words, or a word beside a slot; single words are in the catalogue where a screen shows them alone."""

NOT_SHOWN = ROOT / "tests/lint/not_shown.txt"
LIBRARIES = "libraries.po"
PRODUCT = ("qinglan", "components", "serving", "standins", "pipelines", "commands")
ROOMS = ("qinglan", "components", "standins", "pipelines", "commands", "serving/rollout")
"""Rooms whose texts all have a translation; of the others some have."""

MOST_CHOICES = 16

FIGURES = "Counts"
"""The end of the names of what a step's line shows."""

HOLE, NUMBER_HOLE = "\1", "\2"
HOLES = re.compile(f"([{HOLE}{NUMBER_HOLE}]+)")


def templates_of(tree: ast.AST) -> list[str]:
    """The templates of all literals of a file but docstrings."""
    inner = set(_parts_of_others(tree))
    literals = (
        node for node in nodes_of(tree) if isinstance(node, ast.JoinedStr | ast.Constant) and node not in inner
    )
    return [numbered(text) for node in literals for text in _texts(node)]


@cache
def file_templates(path: Path) -> list[str]:
    """The templates of a file of code or of a page."""
    return templates_of(parsed(path)) if path.suffix == ".py" else [*page_texts(path.read_text(encoding="utf-8"))]


def _parts_of_others(tree: ast.AST) -> Iterator[ast.AST]:
    """Docstrings, and the constants and formats inside of templates."""
    for node in nodes_of(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield node.value
        if isinstance(node, ast.JoinedStr):
            for part in node.values:
                if isinstance(part, ast.Constant):
                    yield part
                elif isinstance(part, ast.FormattedValue):
                    yield from _choice_parts(part.value)
                    if part.format_spec is not None:
                        yield from ast.walk(part.format_spec)


def _choice_parts(value: ast.expr) -> Iterator[ast.AST]:
    """The texts of a choice inside of a template: they are part of it."""
    match value:
        case ast.IfExp(body=body, orelse=orelse):
            choices = [body, orelse]
        case ast.BoolOp(values=[_, *choices]):
            pass
        case _:
            choices = []
    for text in choices:
        if isinstance(text, ast.Constant | ast.JoinedStr):
            yield text
        yield from _choice_parts(text)


def _texts(node: ast.expr) -> list[str]:
    """The texts that an expression can be, with holes for what only a run knows."""
    match node:
        case ast.Constant(value=str(text)):
            return [text]
        case ast.Constant():
            return []
        case ast.JoinedStr(values=values):
            choices = [_texts(part) for part in values]
            count = 1
            for choice in choices:
                count *= len(choice)
            if count > MOST_CHOICES:
                choices = [choice if len(choice) == 1 else [HOLE] for choice in choices]
            return ["".join(parts) for parts in product(*choices)]
        case ast.FormattedValue(value=ast.IfExp() | ast.BoolOp() as choice, format_spec=None):
            return _texts(choice)
        case ast.FormattedValue(format_spec=ast.JoinedStr(values=[ast.Constant(value=str(form))])):
            return [NUMBER_HOLE if form[-1:] in ",dfge%" else HOLE]
        case ast.IfExp(body=body, orelse=orelse):
            return [text for choice in (body, orelse) for text in _texts(choice) or [HOLE]]
        case ast.BoolOp(op=ast.And(), values=[_, text]):
            return ["", *_texts(text)]
        case ast.BoolOp(op=ast.Or(), values=[_, text]):
            return [HOLE, *_texts(text)]
    return [HOLE]


def numbered(text: str) -> str:
    """The template with a number in each hole; holes that touch are one, and a mark that joins it is left out."""
    parts = HOLES.split(_without_mark(text))
    names = (f"{{{number}{':n' if hole == NUMBER_HOLE else ''}}}" for number, hole in enumerate(parts[1::2]))
    return "".join(next(names) if number % 2 else part for number, part in enumerate(parts))


def _without_mark(text: str) -> str:
    text = text.strip().lstrip(",;:").strip()
    mark = MARK.match(text)
    return text[len(mark[0]) :] if mark else text


def is_prose(template: str) -> bool:
    return PROSE.search(SLOT.sub("{", template)) is not None


def room_templates(*rooms: str) -> dict[str, str]:
    """Each template of the rooms' code and pages, and the file that has it first."""
    templates: dict[str, str] = {}
    for room in rooms:
        for path in sorted((ROOT / room).rglob("*")):
            if path.suffix in (".py", ".j2"):
                for template in file_templates(path):
                    templates.setdefault(template, str(path.relative_to(ROOT)))
    return templates


def page_texts(source: str) -> Iterator[str]:
    """The words of a page: {{ "Steps"|t }}, and the names of its rows: {{ row("why", step.why) }}."""
    yield from (json.loads(text) for text in re.findall(r'("[^"]+")\s*\|\s*t\b', source))
    yield from re.findall(r'\brow\("([^"]+)"', source)


def figure_names() -> dict[str, str]:
    """The names of the counts that a step's line shows, and the file that counts."""
    files = [
        path for path in sorted((ROOT / "components").rglob("*.py")) if "(NamedTuple)" in path.read_text("utf-8")
    ]
    return {
        field.target.id.replace("_", " "): str(path.relative_to(ROOT))
        for path in files
        for node in nodes_of(parsed(path))
        if isinstance(node, ast.ClassDef) and node.name.endswith(FIGURES)
        for field in node.body
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
    }


HEADING_CALLS = frozenset({"Table", "add_column", "gaps_table"})


def heading_texts() -> dict[str, str]:
    """The words over the columns of tables, which stand alone and so may be single, each with its file."""
    return {
        text: str(path.relative_to(ROOT))
        for room in ROOMS
        for path in sorted((ROOT / room).rglob("*.py"))
        for text in _headings(nodes_of(parsed(path)))
        if re.search("[a-z]{3}", text)
    }


def _headings(nodes: list[ast.AST]) -> Iterator[str]:
    """The texts that a file gives to its tables, in the call itself or by a name."""
    values = [value for node in nodes for value in _heading_values(node)]
    names = {value.id for value in values if isinstance(value, ast.Name)}
    for node in nodes:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name in names:
                values.append(value)
    for value in values:
        texts = value.elts if isinstance(value, ast.List | ast.Tuple) else [value]
        yield from (text.value for text in texts if isinstance(text, ast.Constant) and isinstance(text.value, str))


def _heading_values(node: ast.AST) -> Sequence[ast.expr]:
    match node:
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=args, keywords=keywords):
            words = (*args, *(keyword.value for keyword in keywords if keyword.arg in ("footer", "title")))
            return words if name in HEADING_CALLS else ()
        case ast.For(iter=values, body=[ast.Expr(value=ast.Call(func=ast.Attribute(attr="add_column"))), *_]):
            return (values,)
    return ()


def added_texts() -> dict[str, str]:
    """Texts of ours that are joined by + or %: no template knows what they become; an f-string has one."""
    hidden = not_shown()
    result: dict[str, str] = {}
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            for node in nodes_of(parsed(path)):
                if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mod):
                    sides = [
                        side for side in (node.left, node.right) if isinstance(side, ast.Constant | ast.JoinedStr)
                    ]
                    parts = [map(numbered, _texts(side)) for side in sides]
                    for text in (text for part in parts for text in part if is_prose(text) and text not in hidden):
                        result[text] = f"{path.relative_to(ROOT)}:{node.lineno}"
    return result


def help_texts() -> dict[str, str]:
    """Each paragraph of help, and its command."""
    import typer

    from commands.cli import app

    def texts(command: Any, path: str) -> Iterator[tuple[str, str]]:
        for text in (command.help, command.epilog, *(getattr(p, "help", None) for p in command.params)):
            yield from ((" ".join(part.split()), path) for part in (text or "").split("\n\n") if part.strip())
        for name, below in getattr(command, "commands", {}).items():
            yield from texts(below, f"{path} {name}")

    return dict(texts(typer.main.get_command(app), "qinglan")) | server_help_texts()


def server_help_texts() -> dict[str, str]:
    """The help of the servers that `qinglan serve` starts, each with its file."""
    from commands.serve import SERVERS

    words: dict[str, str] = {}
    for package, _ in SERVERS.values():
        parser, path = server_parser(package), f"{package.replace('.', '/')}/__main__.py"
        for group in parser._action_groups:
            helps = [action.help for action in group._group_actions]
            words |= {text: path for text in (parser.description, *([group.title, *helps] if helps else [])) if text}
    return words


def server_parser(package: str) -> ArgumentParser:
    """The parser of a server's own options."""
    parser: ArgumentParser = import_module(f"{package}.__main__").parser()
    return parser


def not_shown() -> set[str]:
    """Templates that no person reads on a screen or page, or that stay as they are: commands, markup, patterns."""
    return set(map(json.loads, NOT_SHOWN.read_text(encoding="utf-8").splitlines()))


def catalogue() -> dict[str, str]:
    """Our own entries; libraries.po holds the texts of typer, pydantic and the operating system."""
    files = [file for file in sorted(CATALOGUE.glob("*.po")) if file.name != LIBRARIES]
    entries: dict[str, str] = {}
    for file in files:
        for text, translation in read_po(file):
            assert text not in entries, f"{file.name}: {text!r} is there twice"
            entries[text] = translation
    return entries


def missing() -> dict[str, str]:
    """Templates without a translation, each with the file that has it."""
    known = catalogue().keys() | not_shown()
    libraries = dict(read_po(CATALOGUE / LIBRARIES))
    required = {text: path for text, path in room_templates(*ROOMS).items() if is_prose(text) or path.endswith("j2")}
    required |= figure_names() | heading_texts()
    required |= {text: path for text, path in help_texts().items() if chinese().translate(text) == text}
    return {text: path for text, path in required.items() if text not in known and text not in libraries}


def unused() -> set[str]:
    """Entries, and lines of the file of texts not shown, that no code has any more."""
    used = room_templates(*PRODUCT).keys() | help_texts().keys() | figure_names().keys()
    return (catalogue().keys() | not_shown()) - used


def faults(text: str, translation: str) -> Iterator[str]:
    """The faults of a translation: lost parts or commands, and marks that belong to the other language."""
    slots = [sorted(slot[1] for slot in SLOT.finditer(side)) for side in (text, translation)]
    if slots[0] != slots[1]:
        yield "each {N} stands once in both"
    if sorted(re.findall(r"`[^`]+`", text)) != sorted(re.findall(r"`[^`]+`", translation)):
        yield "what stands in `backticks` stays as it is"
    if sorted(re.findall(r"--[a-z][a-z-]+", text)) != sorted(re.findall(r"--[a-z][a-z-]+", translation)):
        yield "options stay as they are"
    if re.search(r"[\u4e00-\u9fff][,;:?!]|[,;] ?[\u4e00-\u9fff]", translation):
        yield "Chinese has full-width marks"
    if re.search(r"[\u4e00-\u9fff][A-Za-z0-9]|[A-Za-z0-9][\u4e00-\u9fff]", translation):
        yield "a blank stands between Chinese and Latin letters"


def main() -> None:
    """Print the missing entries in .po form, to fill in, and name those that are not used any more."""
    print(
        "\n".join(
            f'#. {path}\nmsgid {json.dumps(text, ensure_ascii=False)}\nmsgstr ""\n'
            for text, path in missing().items()
        )
    )
    for text in sorted(unused()):
        print(f"not used any more: {text!r}", file=sys.stderr)
    for text, where in added_texts().items():
        print(f"{text!r}: {where}", file=sys.stderr)
    for text, translation in catalogue().items():
        for fault in faults(text, translation):
            print(f"{translation!r}: {fault}", file=sys.stderr)


if __name__ == "__main__":
    main()
