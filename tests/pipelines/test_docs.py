"""The tables in the stages' READMEs are those of the code."""

from pathlib import Path

import pytest

from pipelines.docs import READMES, with_settings


@pytest.mark.parametrize("path", READMES, ids=lambda path: path.parent.name)
def test_a_readmes_settings_are_fresh(path: Path) -> None:
    text = path.read_text(encoding="utf-8")

    assert "| setting |" in text
    assert text == with_settings(text, READMES[path]), "run `make docs`"
