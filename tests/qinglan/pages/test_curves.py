"""Curves are drawn from whatever a training left."""

import math
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from qinglan.pages.curves import CURVE_FILE, curve_svg, write_curve_page

SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize(
    ("series", "lines"),
    [
        ({}, []),
        ({"a": [(0, 1.0), (1, 2.0)], "b": []}, [2]),
        ({"a": [(3, 0.5)]}, [1]),
        ({"a": [(0, 1.0), (1, math.nan), (2, 3.0)], "b": [(0, math.inf)]}, [2]),
    ],
)
def test_every_number_is_a_point_and_nothing_else_is(
    series: dict[str, list[tuple[float, float]]], lines: list[int]
) -> None:
    drawn = ET.fromstring(curve_svg("t", series))

    assert [len(line.attrib["points"].split()) for line in drawn.iter(f"{SVG}polyline")] == lines
    assert "nan" not in ET.tostring(drawn, encoding="unicode")


def test_names_are_text() -> None:
    drawn = ET.fromstring(curve_svg("<b>", {"<script>": [(0, 1.0)]}))

    assert [text.text for text in drawn.iter(f"{SVG}text") if "<" in (text.text or "")] == ["<b>", "<script>"]


def test_a_logs_curve_becomes_a_page(tmp_path: Path) -> None:
    (tmp_path / CURVE_FILE).write_text(curve_svg("用量", {"a": [(0, 1.0)]}), encoding="utf-8")

    write_curve_page(tmp_path, tmp_path / "page")

    page = (tmp_path / "page").read_text(encoding="utf-8")
    assert page.startswith('<!doctype html><meta charset="utf-8">') and "用量" in page
