"""The page: one golden text, well-formed, self-contained, and nothing on it runs."""

from pathlib import Path

import orjson
import pytest

from components.evaluation.rewriter.report import build_report, curves, draw_examples, inflation_lines
from qinglan.evaluation.pages.report import render
from qinglan.evaluation.stage_gain import StageGain, read_gains, write_gain
from qinglan.messages import LANGUAGE
from tests.components.evaluation.rewriter.sample_evaluation import CONFIG, Evaluated
from tests.screens.browser import Page
from tests.screens.english import english_left
from tests.screens.golden import check_golden
from tests.screens.strict_html import Strict


def page(evaluated: Evaluated, folder: Path) -> str:
    logs = {"sft": folder / "sft", "ppo": folder / "nothing"}
    logs["sft"].mkdir()
    steps = [{"step": step, "loss": 3 / (1 + step), "note": "<b>"} for step in range(5)]
    (logs["sft"] / "metrics.jsonl").write_bytes(b"\n".join(map(orjson.dumps, steps)))
    gain = StageGain(
        rows=512, measure="right passage first", before=0.687, after=0.882, interval=(0.17, 0.22), taken=True
    )
    write_gain(logs["sft"], gain)
    examples = draw_examples(evaluated.predictions, evaluated.value["candidate"], 3)
    return render(build_report(evaluated.value, examples, curves(logs), read_gains(logs)))


def test_the_page_is_its_golden_text_well_formed_and_fetches_nothing(evaluated: Evaluated, tmp_path: Path) -> None:
    text = page(evaluated, tmp_path)
    parser = Strict()
    parser.feed(text)
    parser.close()

    check_golden(Path(__file__).parent / "golden/report.txt", text)
    assert (parser.open, parser.fetched) == ([], [])


def test_a_report_begins_with_a_stand_in_that_taught(evaluated: Evaluated) -> None:
    settings = {**evaluated.value["settings"], "stand_in_teacher": True}

    assert build_report({**evaluated.value, "settings": settings}).lead.startswith("The teacher was a stand-in")
    assert not evaluated.value["settings"]["stand_in_teacher"]


def test_inflation_is_of_the_rewards_measures_over_the_outsiders(evaluated: Evaluated) -> None:
    part, gaps = evaluated.value["inflation"]["judged_top1"], evaluated.value["paired"]["rl_vs_sft"]

    assert part["outsider"] == pytest.approx(gaps["difference"])
    assert part["signal"] == pytest.approx(gaps["judged_top1"]["difference"])
    assert part["factor"] == pytest.approx(part["signal"] / part["outsider"])
    assert 0 < evaluated.value["inflation"]["judge"]["n"] <= CONFIG.agreement_rows
    assert "no model here was trained by the reward" in next(inflation_lines({}))


@pytest.mark.slow
def test_a_chinese_report_has_no_english_sentence(
    evaluated: Evaluated, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LANGUAGE, "zh")

    text = Page(page(evaluated, tmp_path)).text

    assert "各类问题" in text
    assert english_left(text) == []
