"""The page: well-formed, self-contained, and nothing on it runs."""

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import orjson
import pytest

from components.evaluation.style.report import build_report, draw_examples, to_markdown
from qinglan.evaluation.pages.report import write_report
from tests.components.evaluation.style.sample_predictions import evaluation, predictions, rows_of, table
from tests.screens.strict_html import Strict

HOSTILE = "<script>alert('问')</script>"


def page(found: dict[str, Any], folder: Path, hostile: bool = False) -> str:
    of = table(60)
    rows = rows_of(of)
    if hostile:
        rows = [row.model_copy(update={"input": f"用户问题：{HOSTILE}\n回答：{'长' * 500}"}) for row in rows]
    write_report(build_report(found, draw_examples(rows, predictions(of, rows), 2)), folder / "report.html")
    return (folder / "report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    return evaluation(table(250))


def test_the_page_is_well_formed_and_fetches_nothing(found: dict[str, Any], tmp_path: Path) -> None:
    text = page(found, tmp_path)
    parser = Strict()
    parser.feed(text)
    parser.close()

    assert parser.open == []
    assert parser.fetched == []
    figures = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert len(figures) == 8
    for figure in figures:
        ElementTree.fromstring(figure)
        assert "nan" not in figure


def test_the_page_shows_what_was_found(found: dict[str, Any], tmp_path: Path) -> None:
    text = page(found, tmp_path)

    for said in (
        "Promote: the style model beats", "250 locked answers", "macro F1", "before the temperature: ECE",
        "As a content check", "flagged of those labelled 无伤害", "only the model is right", "用户问题：问",
        "is 1.300",
    ):  # fmt: skip
        assert said in text, said


def test_a_chinese_page_has_no_english_title(
    found: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QINGLAN_LANG", "zh")
    text = re.sub(r"<style.*?</style>", "", page(found, tmp_path), flags=re.DOTALL)
    titles = re.findall(r"<(?:h\d|th|text|figcaption)\b[^>]*>([^<]*)<", text)

    assert "调温度之前：ECE" in text
    assert [title for title in titles if re.search(r"[a-z]{3} [a-z]{2}|[a-z]{4}:", title)] == []


def test_labels_and_texts_are_text_on_the_page(found: dict[str, Any], tmp_path: Path) -> None:
    renamed = orjson.loads(orjson.dumps(found).replace("售前".encode(), HOSTILE.encode()))
    text = page(renamed, tmp_path, hostile=True)

    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert "长" * 401 not in text
    assert "&lt;scri…" in text, "a long label is cut in a figure"


def test_without_a_protective_label_there_is_no_content_check(found: dict[str, Any], tmp_path: Path) -> None:
    without = found | {"content_check": None}

    assert "As a content check" not in page(without, tmp_path)
    assert "content check" not in to_markdown(without)


def test_a_test_of_one_group_has_a_page_too(tmp_path: Path) -> None:
    small = table(20)
    text = page(evaluation(small._replace(alike=small.alike * 0)), tmp_path)

    assert "Hold: the style model stays where it is." in text
    assert "Too few: the test has" in text and "could not be measured" not in text


def test_a_summary_is_tables_of_the_same_numbers(found: dict[str, Any]) -> None:
    text = to_markdown(found)

    assert f"{found['systems']['model']['accuracy']['value']:.1%}" in text
    assert "| 无伤害 | 50 |" in text
    assert "AUC of" in text
