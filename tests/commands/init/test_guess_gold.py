"""A column of gold passages is known by its cells, whatever its name."""

import json
from pathlib import Path

import pytest

from commands.init.guess_gold import guess_gold
from commands.init.setup import read_data


def test_a_column_of_ids_of_the_knowledge_base_is_gold_whatever_its_name(tmp_path: Path) -> None:
    sheet, passages = tmp_path / "q.jsonl", tmp_path / "kb.jsonl"
    rows = [
        {"问题": "怎么洗", "依据": "kb-1，kb-2"},
        {"问题": "怎么退", "依据": ""},
        {"问题": "多重", "依据": "kb-2"},
    ]
    sheet.write_text("".join(json.dumps(row) + "\n" for row in rows))
    passages.write_text("".join(json.dumps({"id": f"kb-{at}", "content": "冷水手洗"}) + "\n" for at in (1, 2)))

    data = read_data("acme", sheet, [passages])

    assert [row.gold for row in data.questions] == [("kb-1", "kb-2"), (), ("kb-2",)]
    assert data.guess.notes == ("依据 was taken for gold passages: its cells are ids of the knowledge base.",)
    assert "gold" not in read_data("acme", sheet, []).guess.columns


@pytest.mark.parametrize(
    ("column", "cells", "ids", "gold"),
    [
        ("依据", ["k1", "k9"], {"k1", "k2"}, ""),
        ("依据", ["", None], {"k1"}, ""),
        ("会员等级", ["1", "2"], {"1", "2"}, ""),
        ("答案段落", ["1", 2], {"1", "2"}, "答案段落"),
    ],
)
def test_a_strange_id_or_a_count_is_no_gold(column: str, cells: list[object], ids: set[str], gold: str) -> None:
    assert guess_gold([{column: cell} for cell in cells], [column], ids) == gold
