"""Figures that stand in two documents agree.

Each test is about a way in which a sentence became stale: a translation with older figures, a README that quoted an
earlier demo, a front page ahead of its pages.
"""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(path for path in ROOT.joinpath("docs").glob("*.md") if not path.name.endswith(".zh.md"))
CHINESE = sorted([*ROOT.glob("*.zh.md"), *ROOT.joinpath("docs").glob("*.zh.md")])
READMES = sorted(
    path
    for room in ("benchmarks", "components", "examples", "manifests", "qinglan", "serving", "standins", "tests")
    for path in (ROOT / room).rglob("*.md")
)

FIGURE = re.compile(r"(?<![\w.,/-])(\d[\d,]*\.\d+|\.\d+|\d[\d,]*(?= ?%))(?![\w]*\.\d)")
"""A number with decimals or per cent: a measurement, not a setting, a version or a count."""
RANGE = re.compile(r"(\d[\d,]*)(?= (?:to|and|or) \d[\d,]* ?%)")
FENCE = re.compile(r"```.*?```", re.DOTALL)
LINK_TARGET = re.compile(r"\]\([^)]*\)")
BLOCK = re.compile(r"\n\s*\n|\n(?=[-*|] )")


def figures(text: str) -> set[float]:
    plain = LINK_TARGET.sub("]", text)
    return {float(number.replace(",", "")) for number in [*FIGURE.findall(plain), *RANGE.findall(plain)]}


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@pytest.mark.parametrize("chinese", CHINESE, ids=lambda path: path.name)
def test_a_chinese_page_has_no_figure_that_its_english_page_lacks(chinese: Path) -> None:
    """Outside of printed output, which may be of another run."""
    english = chinese.with_name(chinese.name.replace(".zh.md", ".md"))

    assert figures(FENCE.sub("", read(chinese))) - figures(read(english)) == set()


@pytest.mark.parametrize("readme", READMES, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_a_readme_says_of_make_demo_stands_on_the_demos_page(readme: Path) -> None:
    mentions = [block for block in BLOCK.split(read(readme)) if "`make demo`" in block]

    assert set().union(*map(figures, mentions)) - figures(read(ROOT / "docs" / "demo.md")) == set()


def test_the_front_page_has_no_figure_that_no_page_has() -> None:
    front = figures(read(ROOT / "README.md"))

    assert front - set().union(*(figures(read(page)) for page in PAGES)) == set()
