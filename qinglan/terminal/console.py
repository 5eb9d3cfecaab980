"""Tables, trees and colours on a terminal, by rich; text in them is shown as qinglan.terminal shows it.

Console().print(styled(("✓ ", "green"), name))
"""

import re
from collections.abc import Iterable
from typing import Any, TextIO, cast

from rich import console
from rich.markdown import Markdown
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from qinglan.terminal import drop_output, in_language, visible, visible_lines

MARKED_LINE = re.compile(r"((?:- |#+ |\*\*)?)(.*?)(\**)")


class Console(console.Console):
    """rich's Console, with each string as one line without markup, and no control characters in its output.

    Strings are made safe before they are measured, so that tables stay aligned. Other text, such as an entity of
    Markdown that decodes to an escape character, is made safe when it is drawn.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(markup=False, emoji=False, **settings)

    def print(self, *objects: Any, **settings: Any) -> None:
        """Print sentences, and the titles of tables, in the person's language; cells are data and stay."""
        super().print(*map(_sentence_in_language, objects), **settings)

    def on_broken_pipe(self) -> None:
        """Drop what is printed once the reader of a pipe has gone, as `say` does; rich would end the command."""
        drop_output(cast(TextIO, self.file))

    def render_str(self, text: str, **settings: Any) -> Text:
        return super().render_str(visible(text), **settings | {"markup": False, "emoji": False})

    def render(
        self, renderable: console.RenderableType, options: console.ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible_lines(segment.text), segment.style)


def _sentence_in_language(thing: Any) -> Any:
    if isinstance(thing, Table):
        thing.title = thing.title and in_language(thing.title)
        for column in thing.columns:
            column.header, column.footer = in_language(column.header), in_language(column.footer)
            column.overflow = "fold"  # a narrow terminal breaks a cell, and cuts nothing of it
    return in_language(thing) if isinstance(thing, str) else thing


def styled(*parts: str | tuple[str, str]) -> Text:
    """One line of text from parts, each plain or with a style."""
    return Text.assemble(*(visible(part) if isinstance(part, str) else (visible(part[0]), part[1]) for part in parts))


def markdown(source: str) -> Markdown:
    """Render a report with links as plain text that shows their targets, and entities, such as &NewLine;, as text."""
    source = "\n".join(map(_markdown_in_language, source.split("\n")))
    return Markdown(source.replace("&", "&amp;"), hyperlinks=False)


def _markdown_in_language(line: str) -> str:
    """The line with its words in the person's language, of a table those of each cell."""
    if line.startswith("| "):
        cells = line.removeprefix("| ").removesuffix(" |").split(" | ")
        return f"| {' | '.join(map(in_language, cells))} |"
    mark, words, end = MARKED_LINE.fullmatch(line).groups()  # type: ignore[union-attr]
    return f"{mark}{in_language(words)}{end}"
