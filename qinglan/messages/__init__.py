"""Show a person's texts in Chinese or English; logs, journals and records stay English, so that all search one form.

translated("3 rows are empty.")    # 3 行为空。 where a person reads Chinese, else the same text

The code writes English. What a person reads is translated where it is printed or drawn, by the catalogue in zh/*.po:
its keys are the English texts as templates. A text that matches none is shown in English.
"""

import os
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from qinglan.messages.catalogue import Catalogue

LANGUAGE = "QINGLAN_LANG"
"""Environment variable with the language of screens and pages, zh or en; it goes before the locale."""

LOCALE = ("LC_ALL", "LC_MESSAGES", "LANG")


def reads_chinese(environment: Mapping[str, str] = os.environ) -> bool:
    """True if QINGLAN_LANG is zh; without it, if the locale of messages is a Chinese one."""
    names = (environment.get(name, "") for name in (LANGUAGE, *LOCALE))
    return next((name for name in names if name), "").lower().startswith("zh")


def translated(text: str) -> str:
    """The text in the person's language; blanks and a bullet before it stay."""
    return chinese().translate(text) if reads_chinese() and text.strip() else text


@cache
def chinese() -> "Catalogue":
    """The Chinese catalogue, read when the first text is translated."""
    from pathlib import Path

    from qinglan.messages.catalogue import Catalogue

    return Catalogue.read(*sorted(Path(__file__).parent.glob("zh/*.po")))
