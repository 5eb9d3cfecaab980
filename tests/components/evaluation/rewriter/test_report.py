"""The page: well-formed, self-contained, and nothing on it runs."""

from pathlib import Path

import orjson
import pytest

from components.evaluation.rewriter.inflation import inflation_lines
from components.evaluation.rewriter.report import build_report, draw_examples
from components.evaluation.rewriter.training_curves import curves, read_series
from qinglan.evaluation.pages.report import to_markdown, write_report
from qinglan.evaluation.stage_gain import StageGain, read_gains, write_gain
from qinglan.messages import LANGUAGE
from tests.components.evaluation.rewriter.sample_evaluation import CONFIG, HOSTILE, Evaluated
from tests.screens.browser import Page
from tests.screens.english import english_left
from tests.screens.strict_html import Strict


def page(evaluated: Evaluated, folder: Path) -> str:
    logs = {"sft": folder / "sft", "ppo": folder / "nothing"}
    logs["sft"].mkdir()
    steps = [{"step": step, "loss": 3 / (1 + step), "note": "<b>"} for step in range(5)]
    lines = [orjson.dumps(step) for step in steps]
    (logs["sft"] / "metrics.jsonl").write_bytes(b"\n".join([*lines, b'{"step": 5, "lo']))
    gain = StageGain(
        rows=512, measure="right passage first", before=0.687, after=0.882, interval=(0.17, 0.22), taken=True
    )
    write_gain(logs["sft"], gain)
    examples = draw_examples(evaluated.predictions, evaluated.value["candidate"], 3)
    write_report(build_report(evaluated.value, examples, curves(logs), read_gains(logs)), folder / "report.html")
    return (folder / "report.html").read_text(encoding="utf-8")


def test_the_page_is_well_formed_and_fetches_nothing(evaluated: Evaluated, tmp_path: Path) -> None:
    parser = Strict()
    parser.feed(page(evaluated, tmp_path))
    parser.close()

    assert parser.open == []
    assert parser.fetched == []


def test_the_page_shows_verdict_expected_examples_and_curves(evaluated: Evaluated, tmp_path: Path) -> None:
    text = page(evaluated, tmp_path)

    for said in (
        "Hold: RL stays where it is.",
        "85.0%",
        "RL − teacher",
        "RL: won",
        "fivedoctors-examiner",
        "documented",
        "sft (40 rows): 0 the same, 0 nearly; ppo (40 rows): 0 the same, 0 nearly.",
        "parents, rl, sft model",
        "SFT on the teacher&#39;s further rows, over SFT without",
        "+17.0 to +22.0",
    ):
        assert said in text
    assert text.count("<svg") >= 8
    assert "<title>loss</title>" in text


def test_a_kind_without_rows_says_so_in_words(evaluated: Evaluated) -> None:
    empty = {"value": None, "low": None, "high": None}
    nothing = {"rows": 0, "teacher": empty, "candidate": empty, "difference": {**empty, "difference": None}}
    kinds = {**evaluated.value["kinds"], "in_pieces": nothing}

    report = build_report({**evaluated.value, "kinds": kinds})

    text = to_markdown(report)
    assert "| in_pieces | 0 |  |  |  | no rows |" in text
    assert "[–, –]" not in text


def test_a_report_begins_with_a_stand_in_that_taught(evaluated: Evaluated, tmp_path: Path) -> None:
    settings = {**evaluated.value["settings"], "stand_in_teacher": True}
    shown = evaluated._replace(value={**evaluated.value, "settings": settings})

    assert "The teacher was a stand-in" in page(shown, tmp_path)
    assert "stand_in_teacher" in evaluated.value["settings"] and not evaluated.value["settings"]["stand_in_teacher"]


def test_a_question_with_a_script_in_it_is_text_on_the_page(evaluated: Evaluated, tmp_path: Path) -> None:
    shown = evaluated._replace(value={**evaluated.value, "notes": [HOSTILE], "candidate": "rl"})
    text = page(shown, tmp_path)

    assert "<script" not in text
    assert "&lt;script&gt;" in text


def test_a_log_gives_its_series_whatever_its_names_and_a_missing_one_gives_none(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step":1,"x":2,"why":"text"}\n{"step":2,"x":3,"once":1}\n{"x":9}\nnot json\n')

    assert read_series(path) == {"x": [(1.0, 2.0), (2.0, 3.0)]}
    assert read_series(tmp_path / "none.jsonl") == {}


def test_the_report_tells_how_far_the_rewards_own_measures_flatter_rl(evaluated: Evaluated, tmp_path: Path) -> None:
    part = evaluated.value["inflation"]["judged_top1"]
    gaps = evaluated.value["paired"]["rl_vs_sft"]

    assert part["outsider"] == pytest.approx(gaps["difference"])
    assert part["signal"] == pytest.approx(gaps["judged_top1"]["difference"])
    assert part["factor"] == pytest.approx(part["signal"] / part["outsider"])
    assert f"Inflation factor of RL&#39;s gain over SFT, {part['factor']:.2f} [" in page(evaluated, tmp_path)


def test_the_judges_factor_is_of_rows_that_judge_and_examiner_scored(evaluated: Evaluated) -> None:
    assert 0 < evaluated.value["inflation"]["judge"]["n"] <= CONFIG.agreement_rows


def test_a_report_without_rl_says_that_nothing_was_trained_by_the_reward() -> None:
    assert "no model here was trained by the reward" in next(inflation_lines({}))


@pytest.mark.slow
def test_a_chinese_report_has_no_english_sentence(
    evaluated: Evaluated, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LANGUAGE, "zh")

    text = Page(page(evaluated, tmp_path)).text

    assert "各类问题" in text
    assert english_left(text) == []
