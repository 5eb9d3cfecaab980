"""The stages' tables, in their READMEs and for the deploy gate, are those of the code."""

from pathlib import Path

import pytest

from qinglan.lineage.auditing.deploy_gate import REQUIRED_FILE
from tools.docs import readmes, required_inputs_text, with_settings

READMES = readmes()


@pytest.mark.parametrize("path", READMES, ids=lambda path: path.parent.name)
def test_a_readmes_settings_are_fresh(path: Path) -> None:
    text = path.read_text(encoding="utf-8")

    assert "| setting |" in text
    assert text == with_settings(text, READMES[path]), "run `make docs`"


def test_the_required_inputs_of_each_stage_are_up_to_date() -> None:
    assert REQUIRED_FILE.read_text(encoding="utf-8") == required_inputs_text(), "run `make docs`"
