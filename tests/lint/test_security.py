"""SECURITY.md names only tests that exist, the same in both languages."""

import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
TEST = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")
DOCUMENTS = ("SECURITY.md", "SECURITY.zh.md")


def named(document: str) -> list[tuple[str, str]]:
    return TEST.findall((REPOSITORY / document).read_text(encoding="utf-8"))


@pytest.mark.parametrize("document", DOCUMENTS)
def test_each_control_names_tests_that_exist(document: str) -> None:
    missing = [
        (path, name)
        for path, name in named(document)
        if not (file := REPOSITORY / path).is_file()
        or (name and not re.search(rf"^(?:async )?def {name}\(", file.read_text(encoding="utf-8"), re.MULTILINE))
    ]

    assert not missing


@pytest.mark.parametrize("document", DOCUMENTS)
def test_no_threat_is_without_a_test(document: str) -> None:
    text = (REPOSITORY / document).read_text(encoding="utf-8")
    table = text.split("\n## ")[3].split("\n|")[3:]

    assert len(table) >= 14
    assert [row for row in table if not TEST.search(row)] == []


def test_both_languages_name_the_same_tests() -> None:
    first, second = map(named, DOCUMENTS)

    assert first == second
