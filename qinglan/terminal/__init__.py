"""Print every line of a command; untrusted text cannot move the cursor, hide, or begin a new line.

say("✓ sft", f"{file.name}: {error}")    # two lines, whatever is in them
say_json(report)                          # the same value for a program that reads it

A line is made safe as a whole when it is printed, so no field has to be remembered: our own lines hold no control
characters, and colours belong to console.py. The linter refuses `print` and rich's own Console elsewhere.
"""

import json
import logging
import os
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable
from typing import Any, TextIO

from qinglan.errors import QinglanError

INVISIBLE = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0000-\U000e0fff]")
"""Characters of the categories letter and mark that no font draws: joiners, fillers, variation selectors, tags.
Together with the format characters, which have their own category, these are Unicode's default ignorables."""

UNPRINTABLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
EMOJI_STYLE = "\ufe0f"

_in_language: Callable[[str], str] = str
"""How texts are translated before they are printed: not at all, until `use_language` sets the person's language.
Processes whose output is a log do not call it, so logs stay English."""

_comma, _colon = ", ", ": "
"""Marks between the texts of a list, and behind a name, as the language has them."""


def use_language() -> None:
    """Print from now on in the language of the person at this terminal."""
    from qinglan.messages import reads_chinese, translated

    global _in_language, _comma, _colon
    _in_language, _comma, _colon = (translated, "，", "：") if reads_chinese() else (str, ", ", ": ")


class Verbatim(str):
    """A text that is not translated: a person's or a model's own words, or a translation."""


def in_language(text: object) -> str:
    """A text of ours as this process prints it."""
    return text if isinstance(text, Verbatim) else _in_language(str(text))


def listed(texts: Iterable[object]) -> str:
    """Texts of ours on one line, each in the language of this process, with its comma between them."""
    return _comma.join(map(in_language, texts))


def labelled(name: str, text: object) -> str:
    """A text of ours after the untranslated name of its subject."""
    return f"{name}{_colon}{in_language(text)}"


def program_name(module: str) -> str:
    """The name of a server's program as it was started: `qinglan serve NAME`, or `python -m MODULE`."""
    return sys.argv[0] if sys.argv[0].startswith("qinglan ") else f"python -m {module}"


def visible(text: object) -> str:
    r"""The text on one line, with a code such as \x1b or \u202e in place of each invisible character."""
    text = str(text)
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        letter.encode("unicode_escape").decode() if _hidden(letter, before) else letter
        for before, letter in zip(("", *text), text, strict=False)
    )


def visible_lines(text: str) -> str:
    """The text with codes in place of invisible characters; line feeds stay."""
    return "\n".join(map(visible, text.split("\n")))


def quoted(text: str) -> list[str]:
    """Lines of foreign text, such as the end of a log, each after a mark, so that none looks like ours."""
    return [f"  | {visible(line.expandtabs())}" for line in text.splitlines()]


def say(*lines: object, to: TextIO | None = None) -> None:
    """Print each object as one line, in the person's language, and flush."""
    _write(*(visible(in_language(line)) for line in lines), to=to)


def say_error(error: QinglanError, program: str = "") -> None:
    """Print the lines of an error on stderr."""
    first, *rest = error.lines or ("",)
    say(f"{program}: {in_language(first)}" if program else first, *rest, to=sys.stderr)


def say_json(value: Any, to: TextIO | None = None) -> None:
    """Print a value as one line of JSON; invisible characters are JSON escapes, so it parses to the same value."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    if not (text.isascii() and text.isprintable()):
        text = "".join(json.dumps(letter)[1:-1] if _hidden(letter) else letter for letter in text)
    _write(text, to=to)


def _write(*lines: str, to: TextIO | None) -> None:
    """Print lines; after the reader of a pipe has gone (`qinglan run acme | head`) drop them, so that the work
    continues."""
    stream = to or sys.stdout
    try:
        print(*lines, sep="\n", file=stream, flush=True)
    except BrokenPipeError:
        drop_output(stream)


def drop_output(stream: TextIO) -> None:
    """Send the stream's buffer and all later output to /dev/null
    (https://docs.python.org/3.11/library/signal.html#note-on-sigpipe)."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


class SayHandler(logging.Handler):
    """Prints the warnings of libraries safely; a warning may quote an untrusted file."""

    def emit(self, record: logging.LogRecord) -> None:
        first, *rest = record.getMessage().split("\n")
        say(first, *quoted("\n".join(rest)), to=sys.stderr)


def say_warnings() -> None:
    """Print the warnings of libraries by `say`, unless logging is set up already."""
    logging.basicConfig(handlers=[SayHandler(logging.WARNING)])
    logging.captureWarnings(True)
    logging.getLogger("stamina").setLevel(logging.ERROR)  # its warnings name each try, but not the call


def _hidden(letter: str, before: str = "") -> bool:
    """True if a character is invisible; the sign for the emoji form is allowed after a symbol."""
    if letter == EMOJI_STYLE and before > "\x7f" and unicodedata.category(before).startswith("S"):
        return False
    return unicodedata.category(letter) in UNPRINTABLE or INVISIBLE.match(letter) is not None
