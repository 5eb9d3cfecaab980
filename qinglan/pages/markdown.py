"""Escapes untrusted text for Markdown on KFP's page.

markdown_text("a ![x](https://b.example/c.png)")     # shown as it is written: no image, no link, no HTML
"""

import re

from qinglan.terminal import visible

MARKUP = re.compile(r"\\(?=[\\<`(\[:|])|[<`|]|(?<=\])[(\[:]")
"""Pattern of the characters to escape: they begin HTML, code or a table's cell, or turn brackets into a link or an
image. Other brackets, such as those of an interval, are not escaped. A backslash before such a character is escaped
too, since it would undo the escape."""


def markdown_text(text: object) -> str:
    """Put a text on one line and escape it (https://spec.commonmark.org/0.31.2/#backslash-escapes)."""
    return MARKUP.sub(r"\\\g<0>", visible(text))
