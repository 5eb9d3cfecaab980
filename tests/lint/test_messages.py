"""The Chinese catalogue has every text of the rooms that are done, and what is read from the code is what it says."""

import ast
import gc
from collections.abc import Iterator

import pytest

from tests.lint.messages import (
    added_texts,
    catalogue,
    faults,
    is_prose,
    missing,
    not_shown,
    page_texts,
    templates_of,
    unused,
)


@pytest.fixture(scope="module", autouse=True)
def without_collector() -> Iterator[None]:
    """No question leaves garbage, and the collector would go through all trees again and again."""
    before = gc.isenabled()
    gc.disable()
    yield
    if before:
        gc.enable()


def test_every_text_of_the_rooms_that_are_done_has_a_translation() -> None:
    assert missing() == {}, "`make messages` prints them in .po form"


@pytest.mark.slow
def test_no_text_is_joined_by_a_sign_of_which_no_template_knows() -> None:
    assert added_texts() == {}, "write it as one f-string"


@pytest.mark.slow
def test_no_translation_is_left_over() -> None:
    assert unused() == set()


def test_no_translation_loses_a_part_or_breaks_a_rule_of_writing() -> None:
    assert {text: list(faults(text, translation)) for text, translation in catalogue().items()} == {
        text: [] for text in catalogue()
    }


def test_a_text_is_either_translated_or_not_shown() -> None:
    assert catalogue().keys() & not_shown() == set()


@pytest.mark.parametrize(
    ("source", "templates"),
    [
        ('raise DataError(f"{path}: {count:,} rows, {name!r}.")', ["{0}: {1:n} rows, {2}."]),
        ('x = "two " "pieces"', ["two pieces"]),
        ("x = f\"{n} row{'s' if n > 1 else ''} left\"", ["{0} rows left", "{0} row left"]),
        ("x = f\"stopped{where and f' in {where}'}.\"", ["stopped.", "stopped in {0}."]),
        ("x = f\"run {name or 'unnamed'}\"", ["run {0}", "run unnamed"]),
        ('x = f"{a}{b} and {c:>{wide}}"', ["{0} and {1}"]),
        ('say(f"! {name} is wrong", "- a bullet", f"[{stage}] it runs")', ["{0} is wrong", "a bullet", "it runs"]),
        ('def f():\n    """A docstring is no text of a screen."""', []),
    ],
)
def test_templates_are_read_from_the_code(source: str, templates: list[str]) -> None:
    assert sorted(templates_of(ast.parse(source))) == sorted(templates)


@pytest.mark.parametrize(
    ("text", "expected"), [("no such file", True), ("{0} rows", True), ("utf-8", False), ("{0}/{1}", False)]
)
def test_sentences_are_told_from_names(text: str, expected: bool) -> None:
    assert is_prose(text) is expected


def test_the_words_of_a_page_are_read_from_its_template() -> None:
    assert list(page_texts('<h2>{{ "Things" | t }}</h2> {{ name }} {{ "a b"|t }}')) == ["Things", "a b"]


@pytest.mark.parametrize(
    ("text", "translation"),
    [
        ("{0} of {1}", "{0} 的"),
        ("run `make demo`", "运行"),
        ("add --yes", "加上 --no"),
        ("a, b", "甲, 乙"),
        ("the API", "这个API"),
    ],
)
def test_a_faulty_translation_is_noticed(text: str, translation: str) -> None:
    assert list(faults(text, translation)) != []
