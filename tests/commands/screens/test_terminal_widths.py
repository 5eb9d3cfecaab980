"""Tables on a terminal: Chinese characters take two columns, and a narrow terminal breaks cells but cuts nothing."""

import re
from collections.abc import Iterator
from io import StringIO
from unittest.mock import patch

import pytest
from rich import _wrap
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from commands.headroom.cli import table_lines
from qinglan.evaluation.headroom import Headroom
from qinglan.evaluation.statistics import Estimate
from qinglan.terminal.console import Console
from qinglan.terminal.line_breaks import WORD

CELLS = ("标准段落居首（实测）", "evaluate 由段落拟的问题", "144,854", "2026-11-25 21:06:38Z", "私钥在这里")
SHARE = Estimate(0.5, 0.4, 0.6, 12)


@pytest.fixture
def chinese_breaks() -> Iterator[None]:
    with patch.object(_wrap, "re_word", WORD):
        yield


@pytest.mark.usefixtures("chinese_breaks")
@pytest.mark.parametrize("width", [30, 45, 60, 80, 120])
def test_a_narrow_table_loses_nothing_and_stays_aligned(width: int) -> None:
    table = Table(*(f"列{number}" for number in range(len(CELLS))))
    table.add_row(*CELLS)
    out = StringIO()

    Console(file=out, width=width).print(table)

    lines = out.getvalue().splitlines()
    assert len(set(map(cell_len, lines))) == 1, "every line is as wide as the others"
    columns = [line.strip("│").split("│") for line in lines if line.startswith("│")]
    shown = ["".join(part.replace(" ", "") for part in column) for column in zip(*columns, strict=True)]
    assert shown == [cell.replace(" ", "") for cell in CELLS]


@pytest.mark.usefixtures("chinese_breaks")
def test_a_short_remark_in_brackets_is_not_torn() -> None:
    lines = Text("照抄历史或段落（实测）").wrap(Console(), 18)

    assert [line.plain for line in lines] == ["照抄历史或段落", "（实测）"]


def test_the_columns_of_headroom_are_as_wide_as_their_cells() -> None:
    each = Headroom(*[SHARE for _ in Headroom._fields])
    kinds = {"带有很长名字的一种用户问题类型": each, "gap": each}

    lines = list(table_lines(kinds, ["sft greedy", "one sample", "best of 8", "gain", "unreached"]))

    assert len(set(map(cell_len, lines))) == 1
    assert lines[1].startswith("带有很长名字的一种用户问题类型  ")
    assert re.search(r"gap +12  +0\.500", lines[2])
