"""Print tables, trees and colours on a terminal with rich; text in them is made safe as in qinglan.terminal.

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
    """Console of rich that prints each string as one line, without markup or control characters.

    Strings are made safe before they are measured, so that tables stay aligned. All other text, such as a Markdown
    entity that decodes to an escape character, is made safe when it is drawn.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(markup=False, emoji=False, **settings)

    def print(self, *objects: Any, **settings: Any) -> None:
        """Print objects, with sentences and with titles of tables translated; cells of tables are not translated."""
        super().print(*map(_sentence_in_language, objects), **settings)

    def on_broken_pipe(self) -> None:
        """Drop all later output if the reader of a pipe is gone, as say() does; rich would end the command."""
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
    """Build one line of text from parts; each part is a plain text, or a text with its style."""
    return Text.assemble(*(visible(part) if isinstance(part, str) else (visible(part[0]), part[1]) for part in parts))


def markdown(source: str) -> Markdown:
    """Render a report in Markdown. Links show their targets, and entities such as &NewLine; are not decoded."""
    source = "\n".join(map(_markdown_in_language, source.split("\n")))
    return Markdown(source.replace("&", "&amp;"), hyperlinks=False)


def _markdown_in_language(line: str) -> str:
    """Translate the words of a line of Markdown; in a table, the words of each cell."""
    if line.startswith("| "):
        cells = line.removeprefix("| ").removesuffix(" |").split(" | ")
        return f"| {' | '.join(map(in_language, cells))} |"
    mark, words, end = MARKED_LINE.fullmatch(line).groups()  # type: ignore[union-attr]
    return f"{mark}{in_language(words)}{end}"
