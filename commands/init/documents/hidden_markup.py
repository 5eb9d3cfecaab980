"""Remove the invisible parts of Markdown: comments, scripts, imports of MDX, tags. Pure functions.

without_hidden("<Tabs>\\n<!-- internal -->\\nInstall it.")    "\\n\\nInstall it."

Code, fenced or between backticks, stays as it is.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from itertools import groupby

from commands.init.documents.passages import fence_numbers, next_fence

CODE = r"(?P<code>(?<!`)(?P<ticks>`+)(?!`)[^\n]*?(?<!`)(?P=ticks)(?!`))"
HIDDEN = re.compile(rf"{CODE}|(?P<start><!--|\{{/\*|<(?:script|style)(?=[\s>]|$))", re.IGNORECASE)
ENDS = {
    "<!--": re.compile("-->"), "{/*": re.compile(r"\*/\s?\}"),
    "<script": re.compile(r"</script\s*>", re.IGNORECASE), "<style": re.compile(r"</style\s*>", re.IGNORECASE),
}  # fmt: skip

INCLUDE = re.compile(r"\s*<<<\s+\S")
"""A line that includes a snippet of another file (https://vitepress.dev/guide/markdown#import-code-snippets)."""

IMPORT = re.compile(r"import\s.{0,200}['\"];?\s*$")
"""A line that imports JavaScript, at the beginning of a block (https://mdxjs.com/docs/what-is-mdx/#esm)."""

BRACES = r"\{(?:[^{}]|\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\})*\}"
TAG = re.compile(
    rf"{CODE}|(?<!\\)<(?P<end>/?)(?P<name>[A-Za-z][\w.-]*)"
    rf"(?P<fields>(?:\s(?:\"[^\"]*\"|'[^']*'|{BRACES}|[^<>\"'{{}}])*)?/?)>"
)
LABEL = re.compile(r"(?<![\w:.-])(?:label|title|alt)=(?:\"([^\"]*)\"|'([^']*)')")
"""The fields of a tag that readers see, such as the name of a tab."""

WITHOUT_END = ("br", "hr", "img")
INLINE = (
    "a", "abbr", "b", "code", "del", "em", "i", "ins", "kbd", "mark", "s", "small", "span", "strong", "sub", "sup",
    "u",
)  # fmt: skip
"""Tags that may stand inside a word, such as H<sub>2</sub>O; every other tag separates words."""

GAP = "\0"


def without_hidden(text: str) -> str:
    """Return the text as readers see it; a hidden line becomes an empty line."""
    lines = list(_without_comments(text.split("\n")))
    parts = [
        (bool(fence), [line for _, line in group])
        for fence, group in groupby(zip(fence_numbers(lines), lines, strict=True), key=lambda pair: pair[0])
    ]
    words = ["\n".join(_without_imports(part)) for fence, part in parts if not fence]
    closed = {match["name"] for text in words for match in TAG.finditer(text) if match["end"]}
    shown = iter(_without_tags(text, closed) for text in words)
    return "\n".join("\n".join(part) if fence else next(shown) for fence, part in parts)


def _without_comments(lines: Sequence[str]) -> Iterator[str]:
    """Yield the lines without comments, scripts and styles.

    A comment, script or style without an end hides the rest of the page if a line begins with it, as in a browser
    (https://spec.commonmark.org/0.31.2/#html-blocks). Within a line, or for an MDX comment, a start mark without an
    end is ordinary text.
    """
    last = {start: number for number, line in enumerate(lines) for start, end in ENDS.items() if end.search(line)}
    fence, start = "", ""
    for number, line in enumerate(lines):
        if not start:
            before, fence = fence, next_fence(fence, line)
            if before or fence:
                yield line
                continue
        ending = [name for name in ENDS if last.get(name, -1) >= number]
        shown, start = _visible_part(line, start, ending)
        yield "" if INCLUDE.match(shown) else shown


def _visible_part(line: str, start: str, ending: Collection[str]) -> tuple[str, str]:
    """Return the visible part of a line, and the start mark (such as `<!--`) of a hidden part that is still open at
    its end. `start` is the mark that is open before the line; `ending` are the marks whose end is in this line or
    below."""
    shown, at = list[str](), 0
    while True:
        if start:
            end = ENDS[start].search(line, at)
            if not end:
                return "".join(shown), start
            at, start = end.end(), ""
        match = next((match for match in HIDDEN.finditer(line, at) if match["start"]), None)
        if not match:
            return "".join([*shown, line[at:]]), ""
        name, begins_line = match["start"].lower(), not line[: match.start()].strip()
        hides = name in ending or (begins_line and name != "{/*")
        shown.append(line[at : match.start() if hides else match.end()])
        at = match.start() + 2 if hides else match.end()  # <!--> is a whole comment
        start = name if hides else ""


def _without_imports(lines: Sequence[str]) -> Iterator[str]:
    begins_block = True
    for line in lines:
        shown = "" if begins_block and IMPORT.match(line) else line
        yield shown
        begins_block = not shown.strip()


def _without_tags(text: str, closed: Collection[str]) -> str:
    """Remove the tags from a text. <NAME> counts as a tag only if it is closed somewhere or needs no end tag;
    otherwise it is a word and stays."""

    def replacement(match: re.Match[str]) -> str:
        name, fields = match["name"], match["fields"] or ""
        if match["code"] or not (name in closed or fields.endswith("/") or name.lower() in WITHOUT_END):
            return match[0]
        gap = "" if name.lower() in INLINE else GAP
        label = LABEL.search(fields)
        return f"{gap}{(label[1] or label[2] or '') if label else ''}{gap}"

    return re.sub(f"{GAP}+", _gap, TAG.sub(replacement, text.replace(GAP, "")))


def _gap(match: re.Match[str]) -> str:
    """Return one space if there is a visible character on both sides of the removed tags; else nothing."""
    before, after = (
        match.string[max(0, match.start() - 1) : match.start()],
        match.string[match.end() : match.end() + 1],
    )
    return " " if before.strip() and after.strip() else ""
