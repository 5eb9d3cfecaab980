"""Golden files: the visible text of a page, as it was reviewed.

QINGLAN_GOLDEN=write python -m pytest tests/components/evaluation    # writes them again; git diff shows the change
"""

import os
import re
from pathlib import Path

from tests.screens.browser import Page


def check_golden(golden: Path, html: str) -> None:
    """Compare the page's text with the golden file; cells and texts of a figure are apart."""
    apart = re.sub("(?=</(td|th|dt|dd|text|title)>)", " | ", html)
    text = "".join(f"{line.strip()}\n" for line in Page(apart).text.splitlines() if line.strip(" |"))
    if os.environ.get("QINGLAN_GOLDEN") == "write":
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")
