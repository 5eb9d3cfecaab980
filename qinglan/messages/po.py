"""Read a catalogue in gettext's .po format, which translators' tools support."""

import json
from collections.abc import Iterator
from pathlib import Path

from qinglan.errors import DataError


def read_po(file: Path) -> Iterator[tuple[str, str]]:
    """Yield each text with its translation. Comments are skipped, and so is the header, the entry with an empty
    text."""
    entry: dict[str, str] = {}
    name = ""
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        if not line.startswith('"'):
            name, _, line = line.partition(" ")
            if name == "msgid" and entry.get("msgid"):
                yield entry["msgid"], entry["msgstr"]
            entry[name] = ""
        try:
            entry[name] += json.loads(line)
        except (ValueError, KeyError) as error:
            raise DataError(f'{file}:{number}: write msgid "..." or msgstr "...".') from error
    if entry.get("msgid"):
        yield entry["msgid"], entry["msgstr"]
