"""A sheet that is too small for a locked test is cross-fitted: one more training for each fold, in one run."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest

from components.evaluation.rewriter.folds import FOLDS_VARIABLE, read_folds
from pipelines.checks.plan import make_plan
from pipelines.checks.promotion import promotion
from pipelines.execute import execution
from pipelines.execute.cross_fit import FOLD_STAGES, cross_fitted_parts
from pipelines.execute.execution import run_stages
from pipelines.execute.local_execution import JOB, step_environment
from pipelines.execute.rundir import RunDir
from pipelines.lines.config import load_config
from pipelines.lines.line import LINEAGE
from pipelines.lines.rewriter import REWRITER, RunConfig
from pipelines.lines.sheet import read_sheet, with_folds
from qinglan.config import load_yaml
from qinglan.errors import ConfigError
from qinglan.run_id import RUN_VARIABLE

STAGES = REWRITER.until(REWRITER.last)


def sheet(path: Path, rows: int = 60, **changes: Any) -> Path:
    """Conversations of two turns, each with its gold."""
    lines = [
        {"id": f"r{n}", "conversation_id": f"c{n // 2}", "question": f"那它一天吃几次{n}", "gold": "k1", **changes}
        for n in range(rows)
    ]
    path.write_text("\n".join(json.dumps(line, ensure_ascii=False) for line in lines), encoding="utf-8")
    return path


def config_of(questions: Path, profile: str = "gpt", **options: Any) -> RunConfig:
    return load_config("fivedoctors", profile, questions=questions, **{"cross_fit": 3, **options})


def divided(config: RunConfig) -> RunConfig:
    return with_folds(config, read_sheet(config))


def test_a_plan_says_how_a_small_sheet_is_tested_and_counts_every_training(tmp_path: Path) -> None:
    config = config_of(sheet(tmp_path / "q.jsonl"), "demo")
    plan, once = make_plan(config), make_plan(config.model_copy(update={"cross_fit": 0}))

    assert plan.cross_fitted.startswith("Cross-fitted in 3 folds") and once.cross_fitted == ""
    calls, before = ({(step.step, step.what): step.calls for step in outputs.steps} for outputs in (plan, once))
    assert calls["generate", "rewrites"] == before["generate", "rewrites"] == 60
    assert calls["evaluate", "retrievals"] == 5 * 60
    assert calls["augment", "pseudo questions"] == 4 * before["augment", "pseudo questions"]
    assert calls["augment", "hindsight rewrites"] < 2 * before["augment", "hindsight rewrites"], "the same are asked"
    assert calls["ppo", "retrievals"] > 3 * before["ppo", "retrievals"]
    assert plan.splits["train"] + plan.splits["dev"] == 60, "the released model learns from all rows"
    assert not [obstacle for obstacle in plan.promotion.obstacles if "rows" in obstacle.reason]
    assert [obstacle for obstacle in once.promotion.obstacles if "The sheet has 60 rows in all" in obstacle.reason]


@pytest.mark.parametrize(
    ("rows", "changes", "marked", "options"),
    [
        (60, {}, "test", {}),
        (48, {}, "train", {}),
        (60, {"gold": ""}, "train", {}),
        (60, {"conversation_id": "c"}, "train", {}),
        (60, {}, "train", {"cross_fit": 0}),
        (450, {}, "train", {"evaluate": {"gate": {"rows": 30}}}),
    ],
    ids=["marks its test", "too few rows", "no labels", "too few conversations", "switched off", "large enough"],
)
def test_a_sheet_is_in_folds_only_where_that_helps(
    rows: int, changes: dict[str, str], marked: str, options: dict[str, Any], tmp_path: Path
) -> None:
    row = {"id": "t", "conversation_id": "t", "question": "怎么吃", "split": marked}
    path = sheet(tmp_path / "q.jsonl", rows, **changes)
    path.write_text(f"{path.read_text()}\n{json.dumps(row)}", encoding="utf-8")

    assert divided(config_of(path, **options)).convert.folds == 0
    assert read_sheet(config_of(path, **options)).folds == []


def test_by_labels_rows_without_gold_count(tmp_path: Path) -> None:
    gate: dict[str, Any] = {"evaluate": {"gate": {"by": "labels"}}}

    assert divided(config_of(sheet(tmp_path / "q.jsonl", gold=""), **gate)).convert.folds == 3


@pytest.mark.parametrize("settings", [{"cross_fit": 1}, {"convert": {"folds": 5}}, {"convert": {"fold": 2}}])
def test_one_fold_and_folds_that_a_profile_names_itself_are_refused(tmp_path: Path, settings: dict[str, Any]) -> None:
    """A submission would make an empty test of named folds, and fail after both trainings."""
    with pytest.raises(ConfigError, match="fold"):
        config_of(tmp_path / "q.jsonl", **settings)


def test_the_folds_of_another_run_are_not_inherited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDS_VARIABLE, '["/another/run"]')
    for name, value in step_environment(RunDir(tmp_path)).items():
        monkeypatch.setenv(name, value)

    assert read_folds() == []


@pytest.mark.parametrize("source", ["tiny", "hub"])
def test_each_fold_repeats_the_trainings_and_a_public_base_is_shared(tmp_path: Path, source: str) -> None:
    base: dict[str, Any] = {"base": {"source": source, "model": "Qwen/Qwen3-0.6B"}}
    config, run = divided(config_of(sheet(tmp_path / "q.jsonl"), **base)), RunDir(tmp_path / "run")
    first, *folds, last = cross_fitted_parts(config, run, STAGES, only=False)

    assert first.stages + last.stages == STAGES and last.stages[0] == "evaluate"
    assert [part.run.root.name for part in folds] == ["fold-1", "fold-2", "fold-3"]
    assert all(set(FOLD_STAGES) - set(part.stages) == ({"base"} if source == "hub" else set()) for part in folds)
    assert {"base_model" in part.borrowed for part in folds} == {source == "hub"}
    settings = [load_yaml(part.run.config)["convert"] for part in folds]
    assert [(setting["folds"], setting["fold"]) for setting in settings] == [(3, 1), (3, 2), (3, 3)]


@pytest.mark.parametrize("stages", [STAGES[:-4], ("sft",)])
def test_a_run_without_an_evaluation_trains_no_siblings(tmp_path: Path, stages: tuple[str, ...]) -> None:
    config = divided(config_of(sheet(tmp_path / "q.jsonl")))

    assert cross_fitted_parts(config, RunDir(tmp_path / "run"), stages, only=len(stages) == 1) == []


@pytest.mark.slow
def test_the_folds_take_the_runs_data_and_the_evaluation_takes_the_folds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The children that execute the parts are played: each leaves what its stages make."""
    config, run = divided(config_of(sheet(tmp_path / "q.jsonl"))), RunDir(tmp_path / "a:b")
    parts, taken, jobs = cross_fitted_parts(config, run, STAGES, only=False), list[Path](), list[Mapping[str, Any]]()
    for folder in (run.records, run.files):
        folder.mkdir(parents=True, exist_ok=True)

    def execute(at: RunDir, line: object, stages: tuple[str, ...], quiet: bool, append: bool, show: object) -> None:
        jobs.append({**orjson.loads((at.root / JOB).read_bytes()), "append": append})
        taken.append((at.files / "validated.jsonl").resolve())
        for stage in stages:
            outputs = {}
            for name in (*REWRITER.stages[stage].outputs, LINEAGE):
                path = at.root / "artifacts" / stage / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(f"{at.root.name} {stage}")
                outputs[name] = {"uri": str(path)}
            record = {"status": "done", "outputs": outputs, "lineage": outputs.pop(LINEAGE)["uri"], "facts": {}}
            (at.records / f"{stage}.json").write_bytes(orjson.dumps(record))

    monkeypatch.setattr(execution, "execute", execute)
    run_stages(REWRITER, run, STAGES, {}, False, True, parts=parts)

    assert [job["append"] for job in jobs] == [False, False, False, False, True]
    validated = (run.files / "validated.jsonl").resolve()
    assert taken[1:4] == [validated] * 3 and validated.read_text() == "a:b validate"
    assert [job["environment"].get(RUN_VARIABLE) for job in jobs[1:4]] == [f"a:b/fold-{n}" for n in (1, 2, 3)]
    monkeypatch.setenv(FOLDS_VARIABLE, jobs[-1]["environment"][FOLDS_VARIABLE])
    assert [(fold.folder / "rl_model").read_text() for fold in read_folds()] == [f"fold-{n} ppo" for n in (1, 2, 3)]
    assert (run.files / "rl_model").read_text() == "a:b ppo", "the released model is the run's own"


@pytest.mark.parametrize("folds", [5, 0])
def test_a_profile_that_cross_fits_is_not_told_of_its_own_setting(tmp_path: Path, folds: int) -> None:
    config = config_of(sheet(tmp_path / "q.jsonl", 40, gold=""), cross_fit=folds)

    small, test = promotion(config, read_sheet(config)).obstacles

    assert ("`cross_fit: 5`" in small.next_step + test.next_step) == (not folds)
