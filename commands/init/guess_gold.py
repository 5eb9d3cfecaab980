"""Guess the column of gold passages by its cells: ids of the knowledge base. Pure functions over records."""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from qinglan.rows.questions import EMPTY_VALUES, gold_ids

GOLD_PARTS = re.compile("段落|答案|知识|文档|资料|标准|gold|passage|answer|doc|relevant", re.I)
"""Parts of a name without which a column of plain numbers is not taken: any count looks like an id that is one."""


def guess_gold(rows: Sequence[Mapping[str, Any]], names: Sequence[str], ids: Collection[str]) -> str:
    """The first of these columns whose cells, empty ones apart, all are ids of the knowledge base; empty for none."""
    for name in names:
        cells = [str(row.get(name) or "").strip() for row in rows]
        cited = [identifier for cell in cells if cell.lower() not in EMPTY_VALUES for identifier in gold_ids(cell)]
        plain_numbers = all(map(str.isdecimal, cited))
        if (
            cited
            and all(identifier in ids for identifier in cited)
            and (not plain_numbers or GOLD_PARTS.search(name))
        ):
            return name
    return ""
