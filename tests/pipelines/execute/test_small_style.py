"""The smaller style model is begun only where it may come to a release; the run ends well without it."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from pipelines.execute import execution
from pipelines.execute.execution import run_stages
from pipelines.execute.rundir import RunDir
from pipelines.execute.small_style import FIRST_STAGE, style_parts, without_small_model
from pipelines.lines.style import STYLE

STAGES = STYLE.until(STYLE.last)
LARGER, SMALLER = STAGES[: STAGES.index(FIRST_STAGE)], STAGES[STAGES.index(FIRST_STAGE) :]
STUDENT = "student_model"


def play_steps(monkeypatch: pytest.MonkeyPatch, word: str, test_rows: int) -> list[tuple[str, ...]]:
    """Each child leaves what its stages make; the answer is what each of them executed."""
    executed = list[tuple[str, ...]]()
    facts = {"prepare": {"test": test_rows}, "gate": {"verdict": word, "reasons": ["played"]}}

    def execute(run: RunDir, line: object, stages: tuple[str, ...], quiet: bool, append: bool, show: object) -> None:
        executed.append(stages)
        if stages[0] == FIRST_STAGE:
            assert run.shown("predictions").exists(), "the second part takes what the first has made"
        for stage in stages[: len(stages) if word == "promote" else stages.index("gate") + 1]:
            outputs = {}
            for name in STYLE.stages[stage].outputs:
                path = run.root / "artifacts" / stage / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch()
                outputs[name] = {"uri": str(path)}
            record = {"status": "done", "outputs": outputs, "facts": facts.get(stage, {})}
            (run.records / f"{stage}.json").write_bytes(orjson.dumps(record))

    monkeypatch.setattr(execution, "execute", execute)
    return executed


def run_style_parts(run: RunDir, stages: tuple[str, ...] = STAGES, only: bool = False) -> dict[str, Any]:
    run.records.mkdir(parents=True, exist_ok=True)
    return run_stages(STYLE, run, stages, {}, only, True, parts=style_parts(run, stages, only))


def test_a_promoted_model_with_a_locked_test_teaches_a_smaller_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executed = play_steps(monkeypatch, "promote", 80)

    record = run_style_parts(RunDir(tmp_path / "run"))

    assert executed == [LARGER, SMALLER]
    assert RunDir(tmp_path / "run").shown(STUDENT).exists()
    assert without_small_model(record) == ""


@pytest.mark.parametrize(
    ("word", "test_rows", "message"),
    [
        ("promote", 0, "Released; no small model is made, because"),
        ("hold", 80, "Held, so no small model is made."),
        ("hold", 0, "Held, so no small model is made;"),
    ],
)
def test_without_a_test_or_a_promotion_no_smaller_model_is_begun_and_an_earlier_runs_is_not_shown(
    word: str, test_rows: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, earlier = RunDir(tmp_path / "run"), tmp_path / "earlier"
    earlier.mkdir()
    run.link(STUDENT, earlier)
    executed = play_steps(monkeypatch, word, test_rows)

    record = run_style_parts(run)

    assert executed == [LARGER]
    assert record["status"] == "done" and record["steps"][FIRST_STAGE] is None
    assert not run.shown(STUDENT).is_symlink()
    assert without_small_model(record).startswith(message)


def test_the_smaller_models_stage_alone_is_executed_whatever_the_gate_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executed, run = play_steps(monkeypatch, "promote", 0), RunDir(tmp_path / "run")
    run_style_parts(run)

    run_style_parts(run, (FIRST_STAGE,), only=True)

    assert executed == [LARGER, (FIRST_STAGE,)]


@pytest.mark.parametrize("until", ["prepare", "register"])
def test_a_run_that_was_to_end_before_it_says_nothing_of_a_smaller_model(
    until: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executed = play_steps(monkeypatch, "promote", 0)

    record = run_style_parts(RunDir(tmp_path / "run"), STYLE.until(until))

    assert executed == [STYLE.until(until)]
    assert without_small_model(record) == ""
