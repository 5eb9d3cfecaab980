"""Each alarm: what raises it, what does not, and that it says what to do."""

import math
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qinglan.live.alarms import Alarm
from qinglan.reward.monitors import MONITORS, StepMetrics, check_alarms

HEALTHY: list[StepMetrics] = [
    {"step": n, "avg_reward": 0.01 * n, "clip_fraction": 0.05, "value_loss": 0.5 / (1 + n), "kl": 0.02 * n,
     "entropy": 0.7 - 0.01 * n, "policy_loss": -0.01, "train_gold": 0.6}
    | ({} if n % 6 else {"gold_dev": 0.7 + 0.004 * n})
    for n in range(1, 37)
]  # fmt: skip


def series(name: str, values: Sequence[float]) -> list[StepMetrics]:
    return [{"step": float(at), name: value} for at, value in enumerate(values, 1)]


def judged(shares: Sequence[tuple[float, float]]) -> list[StepMetrics]:
    """Steps with a share of rollouts whose judging failed, and one that was judged."""
    return [
        {"step": float(at), "judge_failures": failed, "judged_share": answered}
        for at, (failed, answered) in enumerate(shares, 1)
    ]


def gamed(golds: Sequence[float], rise: float = 0.1) -> list[StepMetrics]:
    """A reward that rises while held-out gold is measured every fifth step."""
    last = 5 * (len(golds) - 1)
    return [
        {"step": float(at), "avg_reward": rise * at / last, **({"gold_dev": golds[at // 5]} if at % 5 == 0 else {})}
        for at in range(last + 1)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("steps", "name", "level"),
    [
        (series("avg_reward", [0.3] * 6 + [0.1] * 5), "reward-falling", "warn"),
        (series("clip_fraction", [0.1, 0.51]), "clip-fraction", "warn"),
        (series("clip_fraction", [0.6] * 5), "clip-fraction", "stop"),
        (series("value_loss", [0.5, 0.48] * 5), "value-loss-flat", "warn"),
        (series("kl", [0.5, 4, 4, 4]), "kl-runaway", "warn"),
        (series("kl", [0.5, 20, 20, 20]), "kl-runaway", "stop"),
        (series("entropy", [0.6] * 3 + [0.1] * 3), "entropy-collapse", "warn"),
        (series("entropy", [0.6] * 3 + [0.001] * 3), "entropy-collapse", "stop"),
        (gamed([0.70, 0.60]), "gold-gap", "stop"),
        (gamed([0.70, 0.69, 0.69]), "gold-gap", "warn"),
        (series("avg_reward", [-1.0] * 3), "constant-reward", "stop"),
        (series("policy_loss", [0.1, math.nan]), "not-a-number", "stop"),
        (series("value_loss", [0.1, math.inf]), "not-a-number", "stop"),
        (judged([(0.06, 0.24)] * 3), "judge-failing", "warn"),
        (judged([(0.2, 0.1)] * 5), "judge-failing", "stop"),
        (judged([(0.3, 0.0)] * 3), "judge-failing", "stop"),
        (series("control_pairs_failed", [0.0, 0.0, 0.5, 0.5, 0.1]), "control-pairs", "warn"),
        (series("control_pairs_failed", [1.0, 0.5, 0.5, 0.5, 0.5]), "control-pairs", "stop"),
        (series("control_pairs_failed", [0.0] * 20 + [1.0] * 10), "control-pairs", "stop"),
    ],
)
def test_trouble_is_named_with_its_level(steps: list[StepMetrics], name: str, level: str) -> None:
    assert [(alarm.name, alarm.level) for alarm in check_alarms(steps) if alarm.name == name] == [(name, level)]


@pytest.mark.parametrize(
    "steps",
    [
        [],
        HEALTHY,
        series("avg_reward", [0.3] * 2),
        series("avg_reward", [0.1, 0.12] * 10),
        series("clip_fraction", [0.9, 0.5]),
        series("value_loss", [0.5] * 9),
        series("kl", [9.0, 1.0, 1.0, 1.0]),
        gamed([0.70, 0.68]),
        gamed([0.70, 0.66, 0.71]),
        gamed([0.70, 0.60], rise=0.01),
        judged([(0.02, 0.28)] * 9),
        judged([(0.3, 0.0)] * 2),
        judged([(0.3, 0.0)] * 2 + [(0.0, 0.3)] * 5),  # it failed, and does so no more
        judged([(0.0, 0.0)] * 9),  # no prompt of the sample was among them
        series("control_pairs_failed", [1.0] * 4),
        series("control_pairs_failed", [0.2] * 10),
    ],
)
def test_healthy_steps_raise_no_alarm(steps: list[StepMetrics]) -> None:
    assert check_alarms(steps) == []


def test_the_trap_of_a_gamed_reward_stops_at_the_first_look() -> None:
    """Reward and held-out gold of a training on the plan's formula."""
    observed = {0: (0.0, 0.703), 10: (0.275, 0.603), 20: (0.296, 0.358), 30: (0.361, 0.214)}
    steps = [{"step": float(at), "avg_reward": reward, "gold_dev": gold} for at, (reward, gold) in observed.items()]

    assert [alarm.name for alarm in check_alarms(steps[:2]) if alarm.level == "stop"] == ["gold-gap"]


@pytest.mark.parametrize(("rows", "level"), [(8, []), (64, ["stop"]), (512, ["stop"])])
def test_a_fall_that_so_few_dev_rows_show_by_chance_does_not_stop(rows: float, level: list[str]) -> None:
    steps = [{**step, "gold_dev_rows": rows} for step in gamed([0.75, 0.50])]

    assert [alarm.level for alarm in check_alarms(steps)] == level


def test_alarms_that_stop_the_training_come_first() -> None:
    steps: list[StepMetrics] = [{"step": 1.0, "clip_fraction": 0.6, "policy_loss": math.nan}]

    assert [alarm.level for alarm in check_alarms(steps)] == ["stop", "warn"]


NUMBERS = st.floats(allow_nan=True, allow_infinity=True)
GAUGES = {"gold_dev_rows", "judge_failures", "judged_share", "control_pairs_failed"}
NAMES = st.sampled_from(sorted({*HEALTHY[5], *GAUGES}))


@pytest.mark.slow
@pytest.mark.parametrize("monitor", MONITORS)
@settings(max_examples=50)
@given(steps=st.lists(st.dictionaries(NAMES, NUMBERS), max_size=30))
def test_no_monitor_fails_on_any_steps(
    monitor: Callable[[list[StepMetrics]], Alarm | None], steps: list[StepMetrics]
) -> None:
    alarm = monitor(steps)

    assert alarm is None or alarm.level in ("warn", "stop")
