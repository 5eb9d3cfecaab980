"""Alarms of a loss: what raises each, and what does not."""

import math

import pytest

from qinglan.live.alarms import loss_alarms, sft_without_gain


def validations(*losses: float) -> list[dict[str, float]]:
    return [{"step": 10.0 * at, "eval_loss": loss} for at, loss in enumerate(losses, 1)]


@pytest.mark.parametrize(
    ("losses", "raised"),
    [
        ((2.0, 1.0, 0.9), False),
        ((1.0, 1.5), False),  # two validations are no trend
        ((1.0, 1.5, 1.4), True),
        ((1.0, 1.01, 1.015), False),  # noise
        ((1.0, 1.5, 0.99), False),  # it fell again
        ((1.0, 1.5, 1.4, 0.9, 0.95, 1.2), True),
        ((1.0, math.nan, 1.5), False),  # another alarm speaks of it
    ],
)
def test_a_validation_loss_that_rises_twice_is_a_warning(losses: tuple[float, ...], raised: bool) -> None:
    names = [alarm.name for alarm in loss_alarms(validations(*losses)) if alarm.level == "warn"]

    assert names == ["validation-rising"] * raised


@pytest.mark.parametrize("name", ["loss", "eval_loss", "gradient_norm"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_figure_that_is_no_number_stops_a_training(name: str, value: float) -> None:
    [alarm] = loss_alarms([{"step": 1, "loss": 1.0}, {"step": 2, name: value}])

    assert (alarm.name, alarm.level) == ("not-a-number", "stop")
    assert f"is {value} at step 2" in alarm.message


def test_another_figure_may_be_no_number_and_no_rows_raise_nothing() -> None:
    assert loss_alarms([{"step": 1, "loss": 1.0, "epoch": math.nan}]) == []
    assert loss_alarms([]) == []


@pytest.mark.parametrize(
    ("rows", "unrewritten", "trained", "raised"),
    [
        (36, 0.0, 0.0, True),
        (36, 0.5, 0.5, True),
        (36, 0.5, 0.25, True),
        (36, 0.5, 0.75, False),
        (36, 0.0, 0.01, False),
        (0, 0.0, 0.0, False),
    ],
)
def test_a_student_that_finds_no_more_than_the_questions_as_asked_is_a_warning_before_ppo(
    rows: int, unrewritten: float, trained: float, raised: bool
) -> None:
    alarm = sft_without_gain(rows, unrewritten, trained)

    assert (alarm is not None) == raised
    if alarm:
        assert alarm.level == "warn"
        assert f"first in {trained:.1%}, and the questions as they were asked in {unrewritten:.1%}" in alarm.message
        assert "Before PPO is paid for, stop the run" in alarm.message
