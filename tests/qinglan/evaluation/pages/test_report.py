"""The kernel of reports: one page and one Markdown of the same tables, and examples that nobody chose."""

import random
from pathlib import Path
from typing import Any

import pytest

from qinglan.evaluation.metrics import Metric
from qinglan.evaluation.pages.report import (
    Answer,
    Cell,
    Example,
    Examples,
    Report,
    Section,
    Table,
    Text,
    gaps_table,
    pick_examples,
    to_markdown,
    write_report,
)
from tests.screens.strict_html import Strict

HOSTILE = "<script>alert('|')</script>\u202e"
GAP = {"difference": -0.0001, "low": -0.02, "high": None, "p": 0.0004, "n": 1200, "wins": 1, "losses": 2}


def report(*blocks: Any) -> Report:
    digests = {"test": "a" * 64, "models": {"rl": "b" * 64}, "knowledge_bases": ["c" * 64]}
    return Report(
        "Hold.", False, HOSTILE, [HOSTILE], [Section("S", blocks), Section("empty", [])], [HOSTILE], digests
    )


def test_a_page_of_hostile_texts_is_well_formed_and_runs_nothing(tmp_path: Path) -> None:
    answers = [Answer(HOSTILE, HOSTILE, HOSTILE, True)]
    blocks = [Table([HOSTILE], [[HOSTILE], [Cell(HOSTILE, HOSTILE, True)]]), Text(HOSTILE)]
    write_report(report(*blocks, Examples(HOSTILE, [Example(HOSTILE, HOSTILE, answers)])), tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    parser = Strict()
    parser.feed(page)

    assert (parser.open, parser.fetched) == ([], [])
    assert "<script" not in page and "\u202e" not in page and "\\u202e" in page
    assert "<h2>empty" not in page


def test_markdown_holds_what_is_for_a_terminal_and_no_column_more() -> None:
    shown = Table(["x", "y"], [[Cell("a|b", "judged"), Cell("1", "[0, 2]")]], terminal=True)
    text = to_markdown(report(shown, shown._replace(brief=True), Table(["hidden"], [["hidden"]])))

    assert "| a\\|b (judged) | 1 [0, 2] |" in text
    assert "| a\\|b | 1 |" in text
    assert "hidden" not in text
    assert text.count("####") == 1


@pytest.mark.parametrize(("p", "header"), [("p", "p"), ("p_holm", "p, Holm")])
def test_a_difference_has_the_columns_that_it_has_numbers_for(p: str, header: str) -> None:
    table = gaps_table("pair", [("a − b", GAP | {p: 0.0004}, Metric("top-1"))])

    assert list(table.header) == ["pair", "difference", "95 %", header, "rows", "won", "lost"]
    assert [cell.text for cell in table.cells[0]] == ["a − b", "+0.0", "[-2.0, –]", "< .001", "1,200", "1", "2"]


def test_examples_do_not_hang_on_the_order_of_rows_and_are_one_a_group() -> None:
    rows = [{"id": f"r{at}", "group": at // 3, "kind": "even" if at % 2 == 0 else None} for at in range(60)]

    def drawn(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        picked = pick_examples(rows, ["even"], lambda row: row["kind"], 5, lambda row: row["group"])
        return picked["even"]

    first = drawn(rows)
    for seed in range(5):
        shuffled = random.Random(seed).sample(rows, len(rows))
        assert drawn(shuffled) == first
    assert len({row["group"] for row in first}) == 5
    assert all(row["kind"] for row in first)
