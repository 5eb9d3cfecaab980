"""A stand-in teacher is for trying the machinery: plan, report and release say so."""

import pytest

from pipelines.checks.promotion import promotion
from pipelines.lines.config import load_config
from pipelines.lines.rewriter import RunConfig
from pipelines.lines.sheet import Sheet


def without_permission() -> RunConfig:
    return load_config("fivedoctors", "demo", register={"allow_stand_in": False})


def test_a_run_marks_its_report_and_its_release() -> None:
    config = without_permission()

    assert config.evaluate.stand_in_teacher and config.register_.stand_in_teacher
    assert not load_config("fivedoctors", "gpt").register_.stand_in_teacher


@pytest.mark.parametrize("tenant", ["fivedoctors", "chengla"])
def test_the_demos_say_that_they_release_such_a_model(tenant: str) -> None:
    assert load_config(tenant, "demo").register_.allow_stand_in


def test_a_plan_says_that_such_a_model_is_not_released() -> None:
    answer = promotion(without_permission(), None)

    assert not answer.possible
    assert [obstacle for obstacle in answer.obstacles if "stand-in" in obstacle.reason]
    demo = promotion(load_config("fivedoctors", "demo"), Sheet(), True)
    assert not [obstacle for obstacle in demo.obstacles if "stand-in" in obstacle.reason]
