"""The lint for names and docstrings finds what it should, wherever Python binds a name."""

import pytest

from tests.lint.plain_words import remarks


@pytest.mark.parametrize(
    "source",
    [
        "found = 1",
        "def found(): ...",
        "class Found: ...",
        "def f(found): ...",
        "def f(*, _found=1): ...",
        "for found in []: ...",
        "[found for found in []]",
        "lambda found: 0",
        "import json as found",
        "with open('x') as found: ...",
        "try: ...\nexcept OSError as found: ...",
        "match 1:\n    case found: ...",
        "(found := 1)",
        "self.found = 1",
        "class C:\n    found: int",
        "FOUND = 1",
    ],
)
def test_a_vague_name_is_refused_wherever_it_is_bound(source: str) -> None:
    [remark] = remarks("a.py", source)

    assert "found" in remark.text.lower()


@pytest.mark.parametrize("source", ["findings = 1", "x = found", "x = d['found']", "f(found=1)", "own_rows = 1"])
def test_only_whole_names_that_are_bound_here_count(source: str) -> None:
    assert list(remarks("a.py", source)) == []


def test_a_module_has_a_name_too() -> None:
    [remark] = remarks("folder/looking.py", "")

    assert remark == ("folder/looking.py", 1, "module 'looking': name the thing it holds")


@pytest.mark.parametrize(
    "source",
    [
        '"""What it is."""',
        'def f():\n    """Whether it is."""',
        'class C:\n    """Of the thing."""',
        'class C:\n    a: int\n    """Where it is."""',
        'A = 1\n"""Who did it."""',
    ],
)
def test_a_riddle_at_the_beginning_of_a_docstring_is_refused(source: str) -> None:
    [remark] = remarks("a.py", source)

    assert "begin with a verb or the thing" in remark.text


def test_private_functions_and_other_sentences_are_free() -> None:
    assert list(remarks("a.py", '"""Whatever."""\ndef _f():\n    """Of use here."""\nx = "What"')) == []
