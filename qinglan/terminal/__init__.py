"""Print every line of a command safely: untrusted text cannot move the cursor, be invisible, or begin a new line.

say("✓ sft", f"{file.name}: {error}")    # two lines, whatever is in them
say_json(report)                          # the same value for a program that reads it

A line is made safe as a whole when it is printed, so callers need not escape its fields. Colours are made only by
console.py. The linter refuses `print` and rich's own Console elsewhere.
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
"""Invisible characters that Unicode classifies as letters or marks, such as joiners, fillers and variation selectors.
Together with the format characters (category Cf), these are Unicode's default ignorable characters."""

UNPRINTABLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
EMOJI_STYLE = "\ufe0f"

_in_language: Callable[[str], str] = str
"""Function that translates a text before it is printed; it changes nothing until use_language() is called.
Processes whose output is a log do not call use_language(), so logs stay English."""

_comma, _colon = ", ", ": "
"""Comma between the texts of a list and colon after a name, in the current language."""


def use_language() -> None:
    """Print all later lines in the language of the person at this terminal, Chinese or English."""
    from qinglan.messages import reads_chinese, translated

    global _in_language, _comma, _colon
    _in_language, _comma, _colon = (translated, "，", "：") if reads_chinese() else (str, ", ", ": ")


class Verbatim(str):
    """Text that is not translated, such as a person's or a model's own words, or a finished translation."""


def in_language(text: object) -> str:
    """Translate a text of this program into the language in which this process prints."""
    return text if isinstance(text, Verbatim) else _in_language(str(text))


def listed(texts: Iterable[object]) -> str:
    """Join texts of this program with commas on one line, in the language in which this process prints."""
    return _comma.join(map(in_language, texts))


def labelled(name: str, text: object) -> str:
    """Put a name, which is not translated, and a colon before a translated text."""
    return f"{name}{_colon}{in_language(text)}"


def program_name(module: str) -> str:
    """Return the name of a server's program as it was started: `qinglan serve NAME`, or `python -m MODULE`."""
    return sys.argv[0] if sys.argv[0].startswith("qinglan ") else f"python -m {module}"


def visible(text: object) -> str:
    r"""Replace each invisible character, also a line feed, by a code such as \x1b or \u202e."""
    text = str(text)
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        letter.encode("unicode_escape").decode() if _hidden(letter, before) else letter
        for before, letter in zip(("", *text), text, strict=False)
    )


def visible_lines(text: str) -> str:
    """Replace each invisible character except line feeds by a code."""
    return "\n".join(map(visible, text.split("\n")))


def quoted(text: str) -> list[str]:
    """Put a mark before each line of foreign text, such as a log, so that no line looks like this program's."""
    return [f"  | {visible(line.expandtabs())}" for line in text.splitlines()]


def say(*lines: object, to: TextIO | None = None) -> None:
    """Print each object as one line, translated and made safe, and flush."""
    _write(*(visible(in_language(line)) for line in lines), to=to)


def say_error(error: QinglanError, program: str = "") -> None:
    first, *rest = error.lines or ("",)
    say(f"{program}: {in_language(first)}" if program else first, *rest, to=sys.stderr)


def say_json(value: Any, to: TextIO | None = None) -> None:
    """Print a value as one line of JSON. Invisible characters are escaped, so the line parses to the same value."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    if not (text.isascii() and text.isprintable()):
        text = "".join(json.dumps(letter)[1:-1] if _hidden(letter) else letter for letter in text)
    _write(text, to=to)


def _write(*lines: str, to: TextIO | None) -> None:
    """Print lines. If the reader of a pipe is gone (`qinglan run acme | head`), drop them; the work continues."""
    stream = to or sys.stdout
    try:
        print(*lines, sep="\n", file=stream, flush=True)
    except BrokenPipeError:
        drop_output(stream)


def drop_output(stream: TextIO) -> None:
    """Redirect the stream's buffer and all later output to /dev/null.

    https://docs.python.org/3.11/library/signal.html#note-on-sigpipe
    """
    # Python flushes the stream once more when it exits, and would end with an error of its own.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


class SayHandler(logging.Handler):
    """Logging handler that prints the warnings of libraries safely, because they may quote an untrusted file."""

    def emit(self, record: logging.LogRecord) -> None:
        first, *rest = record.getMessage().split("\n")
        say(first, *quoted("\n".join(rest)), to=sys.stderr)


def say_warnings() -> None:
    """Print the warnings of libraries with say(), unless logging is already configured."""
    logging.basicConfig(handlers=[SayHandler(logging.WARNING)])
    logging.captureWarnings(True)
    logging.getLogger("stamina").setLevel(logging.ERROR)  # its warnings name each try, but not the call


def _hidden(letter: str, before: str = "") -> bool:
    """True if a character is invisible. The sign that turns a symbol into an emoji is allowed after a symbol."""
    if letter == EMOJI_STYLE and before > "\x7f" and unicodedata.category(before).startswith("S"):
        return False
    return unicodedata.category(letter) in UNPRINTABLE or INVISIBLE.match(letter) is not None
