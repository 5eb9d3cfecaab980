"""The page: one golden text, well-formed, self-contained, and nothing on it runs."""

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import orjson
import pytest

from components.evaluation.style.report import build_report, draw_examples, to_markdown
from qinglan.evaluation.pages.report import render
from tests.components.evaluation.style.sample_predictions import evaluation, predictions, rows_of, table
from tests.screens.golden import check_golden
from tests.screens.strict_html import Strict

HOSTILE = "<script>alert('问')</script>"


def page(value: dict[str, Any], text: str = "") -> str:
    answers = table(60)
    rows = rows_of(answers)
    if text:
        rows = [row.model_copy(update={"input": text}) for row in rows]
    return render(build_report(value, draw_examples(rows, predictions(answers, rows), 2)))


@pytest.fixture(scope="module")
def value() -> dict[str, Any]:
    return evaluation(table(250))


def test_the_page_is_its_golden_text_well_formed_and_fetches_nothing(value: dict[str, Any]) -> None:
    text = page(value)
    parser = Strict()
    parser.feed(text)
    parser.close()

    check_golden(Path(__file__).parent / "golden/report.txt", text)
    assert (parser.open, parser.fetched) == ([], [])
    figures = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert len(figures) == 6
    for figure in figures:
        ElementTree.fromstring(figure)
        assert "nan" not in figure


def test_a_chinese_page_has_no_english_title(value: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QINGLAN_LANG", "zh")
    text = re.sub(r"<style.*?</style>", "", page(value), flags=re.DOTALL)
    titles = re.findall(r"<(?:h\d|th|text|figcaption)\b[^>]*>([^<]*)<", text)

    assert "调温度之前：ECE" in text
    assert [title for title in titles if re.search(r"[a-z]{3} [a-z]{2}|[a-z]{4}:", title)] == []


def test_labels_and_texts_are_text_on_the_page(value: dict[str, Any]) -> None:
    renamed = orjson.loads(orjson.dumps(value).replace("售前".encode(), HOSTILE.encode()))
    text = page(renamed, f"用户问题：{HOSTILE}\n回答：{'长' * 500}")

    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert "长" * 401 not in text
    assert "&lt;scri…" in text, "a long label is cut in a figure"


def test_without_a_protective_label_there_is_no_content_check(value: dict[str, Any]) -> None:
    assert "content check" in to_markdown(value)
    assert "content check" not in to_markdown(value | {"content_check": None})
    assert "As a content check" not in page(value | {"content_check": None})


def test_a_test_of_one_group_has_a_page_too() -> None:
    small = table(20)
    text = page(evaluation(small._replace(alike=small.alike * 0)))

    assert "Hold: the style model stays where it is." in text
    assert "Too few: the test has" in text and "could not be measured" not in text
