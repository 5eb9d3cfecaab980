"""The style policy's decisions: what ends it, what is kept, what an answer earns, who may see which rows."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from examples.style_policy.config import LimitsConfig, StylePolicyConfig
from examples.style_policy.judge import fit_judge
from examples.style_policy.reward import check_labels, of_answers, style_score, trl_reward
from examples.style_policy.rows import Example, example, read_rows
from examples.style_policy.stage import style_policy
from examples.style_policy.watch import Snapshot, alarm, best, distinct, paired, variety
from qinglan.errors import ConfigError, DataError, TrainingError
from qinglan.files.files import dump_line
from qinglan.style.labels import DEFAULT_LABELS, Labels, format_training_text, write_mapping
from qinglan.style.model import StyleModel
from qinglan.style.rows import StyleRow
from tests.models.tiny_style import tiny_style_model

LIMITS = LimitsConfig()
START = Snapshot(
    step=0, reward=0.2, judge=0.2, gap=0.0, reward_low=0.0, judge_low=0.0, judge_high=0.0, gap_growth=0.0,
    gap_low=0.0, kl=0.0, length=50.0, distinct=1.0, variety=0.6, repeats=0.04, unfinished=0.0,
)  # fmt: skip
HONEST = START._replace(
    step=10, reward=0.6, judge=0.5, reward_low=0.35, judge_low=0.25, judge_high=0.35, gap_low=0.05
)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, None),
        ({"gap_growth": 0.4, "gap_low": 0.3}, "gaming"),
        ({"gap_growth": 0.4, "gap_low": 0.2}, None),  # chance may explain what is beyond the limit
        ({"judge_low": -0.2, "judge_high": -0.1}, "gaming"),
        ({"judge_low": -0.2, "judge_high": -0.1, "reward_low": -0.01}, None),  # both fall: badly learned, not gamed
        ({"judge_low": -0.1, "judge_high": -0.02}, None),
        ({"distinct": 0.3}, "collapse"),
        ({"variety": 0.1}, "collapse"),
        ({"variety": 0.2}, None),
        ({"repeats": 0.5}, "collapse"),
    ],
)
def test_a_reward_that_runs_ahead_of_the_judge_or_answers_that_collapse_end_it(
    changes: dict[str, float], expected: str | None
) -> None:
    raised = alarm([START, HONEST._replace(**changes)], LIMITS)  # type: ignore[arg-type]

    assert (raised.name if raised else None) == expected
    assert raised is None or "step 10" in raised.message


def test_low_variety_from_the_start_is_no_collapse() -> None:
    dull = {"distinct": 0.2, "repeats": 0.5}

    assert alarm([START._replace(**dull), HONEST._replace(**dull)], LIMITS) is None  # type: ignore[arg-type]


def test_the_best_is_by_the_judge_from_before_the_alarm_and_surely_above_the_start() -> None:
    higher = HONEST._replace(step=20, judge=0.7)
    gamed = HONEST._replace(step=30, reward=0.99, judge=0.8, gap_low=0.3)
    unsure = HONEST._replace(step=5, judge=0.9, judge_low=-0.01)

    assert best([START, unsure, HONEST, higher, gamed], LIMITS) == higher
    assert best([START, unsure, gamed], LIMITS) is None
    assert best([START], LIMITS) is None


def test_answers_that_differ_by_numbers_alone_are_alike() -> None:
    assert distinct([["减30元", "减20元"], ["减30元", "不减"]]) == 0.5
    assert variety(["减30元吧", "减20元吧"]) == 0.5
    assert distinct([["甲", "乙", "甲"]]) == pytest.approx(2 / 3)


def test_a_rise_is_paired_by_question() -> None:
    start = np.array([[0.1, 0.3], [0.5, 0.7], [0.8, 1.0]])

    rise = paired(start + 0.1, start)

    assert rise == pytest.approx((0.1, 0.1, 0.1))


def test_an_empty_answer_earns_nothing_and_is_never_asked_about() -> None:
    requests: list[str] = []

    def probability(texts: Any) -> Any:
        requests.extend(texts)
        return np.full(len(texts), 0.9)

    style = trl_reward(of_answers(probability))

    assert style(prompts=["问", "问", "问"], completions=["好", " \n", ""], trainer_state=None) == [0.9, 0.0, 0.0]
    assert requests == ["问好"]
    assert style(prompts=["问"], completions=[""]) == [0.0]


def test_an_answer_that_cannot_be_scored_is_an_error_and_no_zero(tmp_path: Path) -> None:
    """TRL adds rewards up with nansum, to which a broken model is worth 0."""

    class Broken:
        labels = DEFAULT_LABELS

        def probabilities(self, texts: list[str]) -> Any:
            raise RuntimeError("out of memory")

    with pytest.raises(TrainingError, match="gave nan for '好'"):
        trl_reward(of_answers(lambda texts: np.full(len(texts), np.nan)))(prompts=["问"], completions=["好"])
    with pytest.raises(RuntimeError, match="out of memory"):
        style_score(Broken(), ("诚实",))(["问"], ["好"])  # type: ignore[arg-type]


@pytest.mark.slow
def test_the_reward_is_the_probability_of_the_wanted_manners(tmp_path: Path) -> None:
    model = StyleModel.load(tiny_style_model(tmp_path))
    prompt = format_training_text("一天吃几次", "")

    both = style_score(model, ("诚实", "无伤害"))([prompt], ["一次。"])[0]

    expected = model.predict([prompt + "一次。"])[0]["probabilities"]
    assert both == pytest.approx(expected["诚实"] + expected["无伤害"])


def test_unknown_and_foreign_labels_are_refused() -> None:
    two = Labels(labels=DEFAULT_LABELS.labels[:2])

    check_labels(DEFAULT_LABELS, DEFAULT_LABELS, ("诚实",))
    with pytest.raises(ConfigError, match="'礼貌' is none of 售前"):
        check_labels(DEFAULT_LABELS, DEFAULT_LABELS, ("诚实", "礼貌"))
    with pytest.raises(ConfigError, match="every answer earns 1"):
        check_labels(DEFAULT_LABELS, DEFAULT_LABELS, DEFAULT_LABELS.names)
    with pytest.raises(ConfigError, match="belong together"):
        check_labels(DEFAULT_LABELS, two, ("售前",))


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"batch": 30}, "multiple of num_generations"),
        ({"batch": 40, "accumulation": 16}, "multiple of accumulation"),
        ({"rewarded": ["诚实", "诚实"]}, "twice"),
        ({"rewarded": []}, "rewarded"),
        ({"answers": 1}, "answers"),
    ],
)
def test_settings_that_cannot_work_are_refused(values: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError, match=field):
        StylePolicyConfig.parse(values, "style_policy")


def row(number: int, text: str = "", label: str = "诚实") -> StyleRow:
    return StyleRow(id=f"r{number}", input=text or format_training_text(f"问题{number}", f"答{number}"), label=label)


def write(folder: Path, **splits: list[StyleRow]) -> Path:
    write_mapping(folder, DEFAULT_LABELS)
    for name in ("train", "dev", "test"):
        (folder / f"{name}.jsonl").write_bytes(b"".join(map(dump_line, splits.get(name, []))))
    return folder


def test_a_question_that_was_trained_on_is_never_held_out(tmp_path: Path) -> None:
    folder = write(tmp_path, train=[row(at) for at in range(20)], dev=[row(100)], test=[row(at) for at in range(60)])

    rows = read_rows(folder, held_out=64)

    trained = {example_row.prompt for example_row in rows.train}
    assert rows.train[0] == Example("用户问题：问题0\n回答：", "答0")
    assert (len(rows.watched), len(rows.final)) == (20, 20)
    assert not trained & {*rows.watched, *rows.final} and not set(rows.watched) & set(rows.final)
    assert [len(part) for part in read_rows(folder, held_out=5)[3:5]] == [5, 5]


def test_rows_that_lack_a_part_are_named(tmp_path: Path) -> None:
    few = write(tmp_path, train=[row(1)], dev=[row(2)], test=[row(at) for at in range(3, 30)])

    with pytest.raises(DataError, match="27 questions in test that train lacks"):
        read_rows(few, held_out=64)
    with pytest.raises(DataError, match="row 'r1' is not in the form"):
        example(row(1, "只有一句话"), Path("train.jsonl"))
    with pytest.raises(DataError, match="row 'r1' is not in the form"):
        example(row(1, "用户问题：问\n回答： "), Path("train.jsonl"))


def test_a_judge_that_cannot_tell_is_refused() -> None:
    sentences = {"诚实": "说实话不一定有效", "售前": "现在下单立减"}
    rows = [
        row(at, format_training_text(f"问{at}", sentences[label]), label) for at in range(20) for label in sentences
    ]

    judge, accuracy = fit_judge(rows, rows, ("诚实",))

    assert accuracy == 1.0
    assert judge([rows[0].input])[0] > 0.9 > 0.1 > judge([rows[1].input])[0]
    with pytest.raises(DataError, match="it could not tell gaming from learning"):
        fit_judge(rows, [row(1), row(2)], ("诚实",))
    with pytest.raises(DataError, match="no rows from which a judge could tell '无伤害'"):
        fit_judge(rows, rows, ("无伤害",))


def test_a_gpu_that_is_wanted_and_not_there_is_an_error(tmp_path: Path) -> None:
    rows = write(tmp_path, train=[row(1)], dev=[row(2)], test=[row(at) for at in range(3, 60)])

    with pytest.raises(ConfigError, match="settings of style_policy need 1 GPUs"):
        style_policy(rows, tmp_path, tmp_path, tmp_path / "model", tmp_path / "log", StylePolicyConfig())
