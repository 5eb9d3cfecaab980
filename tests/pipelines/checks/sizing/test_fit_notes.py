"""`qinglan fit` counts folds, adapters and the rows of a sheet, and says what it does not know."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from commands.cli import app
from components.training.style.fit import steps
from pipelines.checks.sizing.check import check_fit
from pipelines.checks.sizing.profiles import load_profile
from pipelines.checks.sizing.report import FitReport, Workload, fit_report
from pipelines.lines.style import StyleRunConfig
from qinglan.errors import ConfigError
from qinglan.sizing.constants import GB
from tests.commands.conftest import Here
from tests.pipelines.checks.sizing.fit_reports import Change, peaks, report_of, rewriter


def test_the_models_of_cross_fitted_folds_are_counted() -> None:
    config = load_profile("style/a100")
    assert isinstance(config, StyleRunConfig)  # a test of fewer than 200 rows is cross-fitted in 5 folds
    many, few = (fit_report(config, "test", load=Workload(rows)) for rows in (701, 699))

    assert many and not any("times" in note for note in many.notes)
    assert few and any(note.startswith("style trains 6 times on so few rows") for note in few.notes)
    [locked], [folded] = many.paces, few.paces
    released, fold = (steps(config.style, rows) for rows in (899, 719))  # 699 and the test's 200; four fifths of them
    assert folded.steps == released.total + 5 * fold.total
    assert folded.validations == 6 * locked.validations


def test_a_style_model_too_large_for_its_card_is_refused() -> None:
    config = load_profile("style/a100")
    large = config.model_copy(update={"base": config.base.model_copy(update={"model": "Qwen/Qwen3-8B"})})

    with pytest.raises(ConfigError, match=r"style needs 1\d\d\.\d GB of card"):
        check_fit(large)


def test_the_table_is_readable_at_eighty_columns_and_json_is_whole(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")

    table, printed, small = (
        here("fit", "a100x4"),
        here("fit", "a100x4", "--json"),
        here("fit", "a100x4", "--gpu-memory", "24"),
    )

    assert table.code == 0 and max(map(len, table.out.splitlines())) <= 80
    assert "base weights 65.5" in table.out and "It fits." in table.out
    assert "price, USD" in table.out and "4,398.0 *" in table.out and "515.4 *" not in table.out
    report = FitReport.model_validate_json(printed.out)
    assert report.fits and {part.basis for room in report.rooms for part in room.parts} > {"counted", "guessed"}
    assert small.code == 2 and "Does not fit: sft needs" in small.out


def test_the_evaluation_needs_what_its_own_vllm_is_started_with() -> None:
    config = rewriter()
    longer = config.evaluate.model_copy(update={"vllm_options": ("--max-model-len=32768",)})

    both = [
        peaks(report_of(config.model_copy(update={"evaluate": settings})))["evaluate card"]
        for settings in (config.evaluate, longer)
    ]

    assert both[1] - both[0] == pytest.approx((32768 - 2048) * 262144 / GB / config.evaluate.serving_gpus, abs=0.1)


def test_an_adapter_that_the_runtime_does_not_take_is_noted() -> None:
    fitting, too_large = (report_of(rewriter(Change("ppo.lora.rank", rank))) for rank in (64, 128))

    assert not any("--max-lora-rank" in note for note in fitting.notes)
    assert any("has rank 144" in note and "takes 128" in note for note in too_large.notes)


def test_a_larger_base_of_the_style_line_fits_a_small_card_with_an_adapter_and_checkpointing() -> None:
    config = load_profile("style/one-gpu-24")
    assert isinstance(config, StyleRunConfig)
    larger = config.base.model_copy(update={"model": "Qwen/Qwen3-4B"})
    adapter = config.style.model_copy(update={"lora_rank": 16, "checkpointing": True, "batch": 1})

    reports = [
        fit_report(config.model_copy(update={"base": larger, "style": settings}), "test")
        for settings in (config.style, adapter)
    ]

    rooms = [{room.stage: room.fits for room in report.rooms if room.room == "card"} for report in reports if report]
    assert [room["style"] for room in rooms] == [False, True]


def test_the_fit_of_a_tenant_counts_the_rows_of_its_sheet_or_says_that_it_does_not(tmp_path: Path) -> None:
    sheet = tmp_path / "q.jsonl"
    marks = ["train"] * 700 + ["dev"] * 20 + ["test"] * 200
    sheet.write_text("".join(f'{{"question": "怎么吃{at}", "split": "{mark}"}}\n' for at, mark in enumerate(marks)))

    def fit(*options: str) -> tuple[int, str]:
        result = CliRunner().invoke(app, ["fit", "fivedoctors", "--json", *options])
        answer = json.loads(result.stdout)
        return answer["rows"], answer["notes"][-1]

    assert fit(f"--set=questions={sheet}") == (700, f"Rows are those of {sheet}.")
    rows, note = fit()
    assert rows == 560 and note.startswith("Rows are the original plan's, since the profile names no sheet")
    assert fit("--rows", "900")[0] == 900


def test_a_cross_fitted_run_needs_room_for_the_folds_and_the_hours_of_all_trainings() -> None:
    config = rewriter(name="one-gpu-24")
    folded = config.model_copy(update={"convert": config.convert.model_copy(update={"folds": 5})})
    once, all_folds = report_of(config), report_of(folded)

    for before, pace in zip(once.paces, all_folds.paces, strict=True):
        assert 3 * before.steps < pace.steps <= 6 * before.steps
        assert (pace.hours or 0) / pace.steps == pytest.approx((before.hours or 0) / before.steps, rel=0.2)
    assert peaks(all_folds)["run scratch volume"] > 2 * peaks(once)["run scratch volume"]
    assert peaks(all_folds)["sft card"] == peaks(once)["sft card"]
