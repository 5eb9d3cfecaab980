"""Tables, trees and colours on a terminal, by rich; text in them is shown as qinglan.terminal shows it.

Console().print(styled(("✓ ", "green"), name))
"""

from collections.abc import Iterable
from typing import Any

from rich import console
from rich.markdown import Markdown
from rich.segment import Segment
from rich.text import Text

from qinglan.terminal import visible, visible_lines


class Console(console.Console):
    """rich's, where a string is one line without markup, and nothing that is drawn holds control characters.

    Strings are made safe before they are measured, so that tables stay straight. What reaches the screen by another
    way, such as an entity of Markdown that decodes to an escape character, is made safe as it is drawn.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(markup=False, emoji=False, **settings)

    def render_str(self, text: str, **settings: Any) -> Text:
        return super().render_str(visible(text), **settings | {"markup": False, "emoji": False})

    def render(
        self, renderable: console.RenderableType, options: console.ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible_lines(segment.text), segment.style)


def styled(*parts: str | tuple[str, str]) -> Text:
    """One line of parts, each plain or with its style."""
    return Text.assemble(*(visible(part) if isinstance(part, str) else (visible(part[0]), part[1]) for part in parts))


def markdown(source: str) -> Markdown:
    """A report whose links show where they lead and open nothing, and whose entities, such as &NewLine;, are text."""
    return Markdown(source.replace("&", "&amp;"), hyperlinks=False)
