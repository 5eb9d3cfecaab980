"""A person's terminal: a command runs on a pseudo-terminal, and an emulator shows what stands on the screen."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pyte
from wcwidth import wcwidth

COLUMNS, ROWS = 4000, 400
"""So wide and high that nothing wraps or leaves the screen."""

FORGED = "✓ FORGED intact"
ATTACKS = {
    "a cleared screen": f"\x1b[2J\x1b[H{FORGED}",
    "a line feed": f"a\n{FORGED}",
    "a carriage return": f"a\r{FORGED}",
    "backspaces": "\b" * 400 + FORGED,
    "the cursor upwards": f"\x1b[9A\x1b[1G{FORGED}",
    "hidden text": "\x1b[8mhidden\x1b[28m",
    "eight-bit CSI": f"\x9b2J\x9bH{FORGED}",
    "next line": f"a\x85{FORGED}",
    "a vertical tab": f"a\x0b\x0c{FORGED}",
    "a title": "\x1b]0;owned\x07",
    "an eight-bit title": "\x9d2;owned\x9c",
    "the clipboard": "\x1b]52;c;cm0gLXJmIC8=\x07",
    "a link": "\x1b]8;;http://evil.example\x1b\\here\x1b]8;;\x1b\\",
    "a device control string": "\x1bP+q544e\x1b\\",
    "a reset": "\x1bc",
    "line separators": f"a\u2028{FORGED}\u2029{FORGED}",
    "turned around": "\u202etcatni\u202c \u2066x\u2069\u200f\u061c",
    "a parted digest": "107a\u200b19\u200d03\u2060af\ufeffb2\u00ad",
    "fillers": "a\u3164b\u115fc\u034fd",
    "tags": "a\U000e0049\U000e0047\U000e004e",
    "variation selectors": "a\ufe0f\ufe01\U000e0100",
    "markup": "[red]red[/red] [link=http://evil.example]here[/link]",
    "entities of Markdown": f"&#27;[2J&#x202e; [here](http://evil.example) &#10;{FORGED} &NewLine;{FORGED}",
}
MAIN = "from commands.cli import main; main()"
ALL = " ".join(ATTACKS.values())
STYLE = re.compile(r"\x1b\[[0-9;]*m")
REDRAWN = re.compile(r"\x1b\[(\?25[lh]|2K|1A)|\r(?=[\x1b\n])")
"""Sequences with which a progress bar redraws itself."""


class Screen(NamedTuple):
    code: int
    raw: str
    """All that the command sent to the terminal."""

    lines: list[str]
    title: str

    def has_line(self, beginning: str) -> bool:
        return any(line.startswith(beginning) for line in self.lines)


def on_terminal(*words: object, cwd: Path, **environment: str) -> Screen:
    """`qinglan WORDS`, both of its outputs on one terminal, nobody at the keyboard."""
    return _run([sys.executable, "-c", MAIN, *map(str, words)], cwd, environment)


def code_on_terminal(code: str, cwd: Path, **environment: str) -> Screen:
    return _run([sys.executable, "-c", code], cwd, environment)


def _run(command: list[str], cwd: Path, environment: dict[str, str]) -> Screen:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    terminal = {"TERM": "xterm-256color", "COLUMNS": str(COLUMNS), "LINES": str(ROWS), "PYTHONWARNINGS": "default"}
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=slave, stderr=slave, cwd=cwd,
        env={**os.environ, **terminal, **environment},
    )  # fmt: skip
    os.close(slave)
    sent: list[bytes] = []
    reader = threading.Thread(target=_read, args=(master, sent))
    reader.start()
    code = process.wait(timeout=600)
    reader.join()
    os.close(master)
    return shown(code, b"".join(sent))


def _read(terminal: int, sent: list[bytes]) -> None:
    try:
        while piece := os.read(terminal, 65536):
            sent.append(piece)
    except OSError:  # Linux says so of a terminal whose last program has ended
        return


def shown(code: int, sent: bytes) -> Screen:
    screen = pyte.Screen(COLUMNS, ROWS)
    pyte.ByteStream(screen).feed(sent)
    lines = [_text(screen.buffer[row]) if row in screen.buffer else "" for row in range(ROWS)]
    return Screen(code, sent.decode(), lines, screen.title)


def _text(line: Mapping[int, Any]) -> str:
    """A line as far as it was written on; pyte's own `display` looks at every one of 1,600,000 cells."""
    signs, hidden = [], False
    for column in range(max(line, default=-1) + 1):
        sign = line[column].data
        if not hidden:
            signs.append(sign)
        # The cell behind a wide sign is not seen.
        hidden = not hidden and sign != "" and wcwidth(sign[0]) == 2
    return "".join(signs).rstrip()


def faults(screen: Screen) -> list[str]:
    """Return traces of untrusted text on the screen: forged lines, and characters that act or are invisible."""
    rest = REDRAWN.sub("", STYLE.sub("", screen.raw)).replace("\r\n", "\n")
    # Lines as they were printed: where the terminal breaks a long one is chance.
    result = [f"a line of its own: {line}" for line in rest.split("\n") if line.lstrip().startswith(FORGED)]
    sent = {letter for letter in rest if _acts(letter)}
    result += [f"sent to the terminal: {letter.encode('unicode_escape').decode()}" for letter in sorted(sent)]
    return result + ([f"the title: {screen.title}"] if screen.title else [])


def _acts(letter: str) -> bool:
    unseen = unicodedata.category(letter) in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp") or letter in "\u034f\u115f\u3164"
    return letter != "\n" and (unseen or "\ufe00" <= letter <= "\ufe0f" or letter >= "\U000e0000")
