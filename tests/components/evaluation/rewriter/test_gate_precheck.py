"""The gate holds for each obstacle that is known beforehand."""

from typing import Any

import pytest

from components.evaluation.rewriter.gate_precheck import GoldCounts, PlannedRun, find_obstacles
from qinglan.evaluation.gates.rewriter_gate import GateConfig

ENOUGH = GoldCounts(200, 150)
GOOD = PlannedRun(
    "judge", "examiner", teacher_price=11.25, hour_price=2.0, test={"fivedoctors": ENOUGH}, snapshot=True
)


@pytest.mark.parametrize(
    "run",
    [GOOD, GOOD._replace(snapshot=None), GOOD._replace(test=None), GOOD._replace(teacher_price=0, hour_price=0)],
)
def test_a_run_that_the_gate_may_promote_has_no_obstacle(run: PlannedRun) -> None:
    assert list(find_obstacles(run, GateConfig())) == []


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"examiner": " JUDGE"}, "The examiner is the judge"),
        ({"test": {"fivedoctors": GoldCounts(199, 199)}}, "has 199 rows with gold passages"),
        ({"test": {}}, "has 0 rows"),
        ({"test": {"fivedoctors": ENOUGH, "acme": GoldCounts(9, 1)}}, "acme cannot be measured"),
        ({"test": {"fivedoctors": ENOUGH, "acme": GoldCounts()}}, "acme cannot be measured"),
        ({"teacher_price": 0.0}, "price is 0"),
        ({"snapshot": False}, "name no knowledge base"),
    ],
)
def test_each_thing_that_holds_every_model_is_one_obstacle_with_a_next_step(
    changes: dict[str, Any], reason: str
) -> None:
    [result] = find_obstacles(GOOD._replace(**changes), GateConfig())

    assert reason in result.reason and result.next_step


def test_the_threshold_is_the_gates_own() -> None:
    assert not list(find_obstacles(GOOD._replace(test={"fivedoctors": GoldCounts(30, 20)}), GateConfig(rows=30)))
