"""examples/thread.py, which shows the thread in one file, runs to the gate's verdict."""

from pathlib import Path

import pytest

from examples.thread import main
from qinglan.config import merge_settings
from qinglan.evaluation.gates.evaluation_file import read_evaluation
from tests.commands.demo.new_tenant_run import SHORTEST

LEARNS = {"base": {"tiny": {"steps": 120}}, "sft": {"epochs": 4.0}}
"""A model that answers in words; SFT refuses any other."""

pytestmark = [pytest.mark.slow, pytest.mark.nightly]  # tests of stages and of `qinglan run` hold the same promises


def test_the_thread_without_an_orchestrator_comes_to_a_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("QINGLAN_CACHE", str(tmp_path / "cache"))

    main(tmp_path, conversations=40, **merge_settings(SHORTEST, LEARNS))

    evaluation = read_evaluation(tmp_path / "evaluation.json")
    assert {"plain", "history", "teacher", "sft", "rl"} <= set(evaluation["systems"])
    assert (tmp_path / "report.html").is_file() and (tmp_path / "rl_model" / "config.json").is_file()
    assert "The gate says: hold." in capsys.readouterr().out, "a training of one step improves nothing"
