"""Teacher and plain question are compared by gold, else by a score that compares; chance stops no run."""

import pytest

from qinglan.evaluation.teacher_gain import GOLD, SCORE, RetrievalPair, compare_teacher, gain_from_facts


def pairs(
    rows: int, plain: float, rewritten: float, gold: bool = True, by_need: bool = True, turns: int = 1
) -> list[RetrievalPair]:
    """Rows of which these shares find the passage, spread evenly; a score is the share itself."""
    outcomes = [(_hit(number, rows, plain), _hit(number, rows, rewritten)) for number in range(rows)]
    return [
        RetrievalPair(("t", str(number // turns)), hits if gold else None, (float(hits[0]), float(hits[1])), by_need)
        for number, hits in enumerate(outcomes)
    ]


def _hit(number: int, rows: int, share: float) -> bool:
    return number < share * rows


VERDICTS = [
    # name, pairs, measure, the verdict: worse, helps, unclear, or None where nothing compares
    ("MTRAG: 68.6 % and 10.2 %", pairs(382, 0.686, 0.102), GOLD, "worse"),
    ("better", pairs(382, 0.043, 0.114), GOLD, "helps"),
    ("all alike", pairs(382, 0.5, 0.5), GOLD, "unclear"),
    ("nothing found by either", pairs(382, 0, 0), GOLD, "unclear"),
    ("one of 400 lost", pairs(400, 0.5025, 0.5), GOLD, "unclear"),
    ("20 rows, all lost", pairs(20, 1, 0), GOLD, "worse"),
    ("one conversation of 40 turns", pairs(40, 1, 0, turns=40), None, None),
    ("two conversations of 20 turns", pairs(40, 1, 0, turns=20), GOLD, "unclear"),
    ("19 labelled rows: the score decides", pairs(19, 1, 0), SCORE, "worse"),
    ("three rows are chance", pairs(3, 1, 0), SCORE, "unclear"),
    ("one row", pairs(1, 1, 0), None, None),
    ("no gold, worse score", pairs(100, 0.9, 0.2, gold=False), SCORE, "worse"),
    ("no gold, better score", pairs(100, 0.2, 0.9, gold=False), SCORE, "helps"),
    ("scores against the query do not compare", pairs(100, 0.9, 0.2, gold=False, by_need=False), None, None),
    ("gold compares whatever the scores are against", pairs(100, 0.9, 0.2, by_need=False), GOLD, "worse"),
    ("no rows", [], None, None),
]


@pytest.mark.parametrize(("name", "rows", "measure", "verdict"), VERDICTS, ids=[row[0] for row in VERDICTS])
def test_only_a_loss_beyond_chance_is_worse(
    name: str, rows: list[RetrievalPair], measure: str | None, verdict: str | None
) -> None:
    gain = compare_teacher(rows)

    assert (gain and gain.measure) == measure
    if gain:
        assert ("worse" if gain.is_worse else "helps" if gain.helps else "unclear") == verdict
        assert gain_from_facts({"teacher_gain": gain._asdict()}) == gain
