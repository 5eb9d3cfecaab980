"""Untrusted text in Markdown, as KFP's page shows it.

markdown_text("a ![x](https://b.example/c.png)")     # shown as it is written: no image, no link, no HTML
"""

import re

from qinglan.terminal import visible

MARKUP = re.compile(r"\\(?=[\\<`(\[:|])|[<`|]|(?<=\])[(\[:]")
"""Beginnings of HTML, code or a table's cell, and those that make brackets a link or an image; other brackets, as
of an interval, are text. A backslash before one of these would undo its escape."""


def markdown_text(text: object) -> str:
    """The text on one line, as text: https://spec.commonmark.org/0.31.2/#backslash-escapes"""
    return MARKUP.sub(r"\\\g<0>", visible(text))
