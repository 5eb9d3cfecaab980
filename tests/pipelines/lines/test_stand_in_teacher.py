"""A stand-in teacher is for trying the machinery: plan, report and release say so."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from pipelines.checks.promotion import promotion, promotion_lines
from pipelines.lines.config import CONFIGS, dump_config, load_config
from pipelines.lines.rewriter import RunConfig
from pipelines.lines.sheet import Sheet
from qinglan.config import load_yaml


def without_permission(tmp_path: Path, **changes: Any) -> RunConfig:
    demo = {
        name: value for name, value in load_yaml(CONFIGS / "fivedoctors" / "demo.yaml").items() if name != "register"
    }
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(demo | changes))
    return load_config("fivedoctors", str(tmp_path / "mine.yaml"))


def test_a_run_marks_its_report_and_its_release(tmp_path: Path) -> None:
    config = without_permission(tmp_path)

    assert config.evaluate.stand_in_teacher and config.register_.stand_in_teacher
    assert not config.register_.allow_stand_in and config.register_.name == "fivedoctors/rewriter"
    assert not load_config("fivedoctors", "gpt").register_.stand_in_teacher
    dump_config(config, tmp_path / "config.yaml")
    assert RunConfig.parse(load_yaml(tmp_path / "config.yaml"), "config.yaml") == config


@pytest.mark.parametrize("tenant", ["fivedoctors", "chengla"])
def test_the_demos_say_that_they_release_such_a_model(tenant: str) -> None:
    assert load_config(tenant, "demo").register_.allow_stand_in


def test_a_plan_says_that_such_a_model_is_not_released(tmp_path: Path) -> None:
    answer = promotion(without_permission(tmp_path), None)

    assert not answer.possible
    assert "A stand-in teaches this run, to try the machinery" in promotion_lines(answer)[1]
    demo = promotion(load_config("fivedoctors", "demo"), Sheet(), True)
    assert not [obstacle for obstacle in demo.obstacles if "stand-in" in obstacle.reason]
