"""Show texts to a person in Chinese or English. Logs, journals and records are always in English.

translated("3 rows are empty.")    # 3 行为空。 if the person reads Chinese, else the same text

The code contains English texts. A text is translated when it is printed or drawn, by the catalogue in zh/*.po, whose
keys are templates of the English texts. A text that matches no template is shown in English.
"""

import os
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from qinglan.messages.catalogue import Catalogue

LANGUAGE = "QINGLAN_LANG"
"""Environment variable with the language of screens and pages, zh or en. It takes precedence over the locale."""

LOCALE = ("LC_ALL", "LC_MESSAGES", "LANG")


def reads_chinese(environment: Mapping[str, str] = os.environ) -> bool:
    """True if QINGLAN_LANG is Chinese or, if it is not set, if the locale of messages is Chinese."""
    names = (environment.get(name, "") for name in (LANGUAGE, *LOCALE))
    return next((name for name in names if name), "").lower().startswith("zh")


def translated(text: str) -> str:
    """Translate a text into the person's language. Blanks and a bullet before the text are not changed."""
    return chinese().translate(text) if reads_chinese() and text.strip() else text


@cache
def chinese() -> "Catalogue":
    """Read the Chinese catalogue, once, when the first text is translated."""
    from pathlib import Path

    from qinglan.messages.catalogue import Catalogue

    return Catalogue.read(*sorted(Path(__file__).parent.glob("zh/*.po")))
