"""Promote or hold: by table, and by properties that no evaluation can break."""

import copy
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qinglan.evaluation.gates.rewriter_gate import GateConfig, decide
from qinglan.evaluation.question_kinds import KINDS
from tests.components.evaluation.rewriter.sample_evaluation import ORIGINS

GATE = GateConfig()


def compared(low: float = 0.04) -> dict[str, Any]:
    gain = {"difference": low + 0.02, "low": low, "high": low + 0.04, "p": 0.001, "n": 1000}
    return {**gain, "ndcg": dict(gain), "recall": dict(gain)}


def gap(difference: float | None, low: float | None, high: float | None, n: int = 40) -> dict[str, Any]:
    return {"difference": difference, "low": low, "high": high, "p": 0.5, "n": n}


def good() -> dict[str, Any]:
    """An evaluation that leaves nothing to wish for."""

    def level(length: float, cost: float) -> dict[str, Any]:
        values = {"copied": 0.0, "invented": 0.0, "zero_hit": 0.01, "length": length, "cost": cost}
        return {name: {"value": value} for name, value in values.items()}

    versus = {**compared(), "tenants": {"fivedoctors": compared(), "chengla": compared()}}
    return {
        "candidate": "rl",
        "systems": {
            "teacher": level(14.0, 25.0),
            "rl": level(15.0, 2.8),
        },
        "paired": {"rl_vs_teacher": versus, "rl_vs_plain": compared(0.5)},
        "kinds": {kind: {"difference": compared()} for kind in (*KINDS, "tenant fivedoctors", "tenant chengla")},
        "settings": {"gate": GATE.model_dump()},
        "counts": {"examined": 300},
        "agreement": {"examiner": "model-b", "judge": "model-a"},
        **copy.deepcopy(ORIGINS._asdict()),
    }


def changed(path: str, value: Any) -> dict[str, Any]:
    evaluation = copy.deepcopy(good())
    *names, last = path.split(".")
    node = evaluation
    for name in names:
        node = node[name]
    if value is None:
        del node[last]
    else:
        node[last] = value
    return evaluation


def test_a_candidate_that_is_better_everywhere_is_promoted_with_its_figures() -> None:
    verdict = decide(good(), GATE)

    assert (verdict.promote, verdict.word) == (True, "promote")
    assert verdict.reasons == [
        "RL minus teacher, gold passage first: +6.0 points [+4.0, +8.0], p 0.0010, 1000 queries."
    ]


def test_the_verdict_names_a_significant_loss_that_the_gate_does_not_require() -> None:
    worse = {"difference": -0.17, "low": -0.23, "high": -0.11}
    unsure = {"difference": -0.02, "low": -0.06, "high": 0.01}
    versus = good()["paired"]["rl_vs_teacher"] | {"quality": worse, "judged_top1": unsure}

    verdict = decide(good() | {"paired": good()["paired"] | {"rl_vs_teacher": versus}}, GATE)

    assert verdict.promote
    assert verdict.reasons[1:] == [
        "Yet quality by the examiner (1 to 5) is below the teacher's: -0.17 [-0.23, -0.11]."
    ]


def unmeasured(n: int) -> dict[str, Any]:
    """An evaluation of so few rows that no interval could be made."""
    evaluation = copy.deepcopy(good())
    evaluation["paired"]["rl_vs_teacher"] |= {"n": n, **dict.fromkeys(("difference", "low", "high", "p"))}
    evaluation["paired"]["rl_vs_teacher"]["ndcg"]["low"] = None
    evaluation["paired"]["rl_vs_plain"]["low"] = None
    return evaluation


def test_too_few_rows_are_the_only_reason_where_they_are_the_cause() -> None:
    few = decide(unmeasured(3), GATE)
    folded = decide({**unmeasured(3), "cross_fitted": {"folds": 5}}, GATE)
    enough = decide(unmeasured(1000), GATE)

    assert few.reasons == ["Too few: 3 queries with gold passages were compared, and 200 are wanted."]
    assert not folded.promote and not any("could not be measured" in reason for reason in folded.reasons)
    assert not enough.promote and enough.reasons == [
        "rl against teacher: the interval's lower end could not be measured.",
        "rl against plain: the interval's lower end could not be measured.",
        "rl against teacher, ndcg: the interval's lower end could not be measured.",
    ]


def test_a_cost_without_a_number_is_a_reason_beside_too_few_rows() -> None:
    evaluation = unmeasured(3)
    evaluation["systems"]["rl"]["cost"]["value"] = None

    assert decide(evaluation, GATE).reasons[1:] == ["The value of cost of rl could not be measured."]


HELD = [
    ("paired.rl_vs_teacher.low", 0.0, "Better than the teacher: not shown"),
    ("paired.rl_vs_teacher.low", -0.2, "Better than the teacher: not shown"),
    ("paired.rl_vs_teacher.difference", 0.0, "Better than the teacher: not shown"),
    ("paired.rl_vs_teacher.p", 0.05, "Better than the teacher: not shown"),
    ("paired.rl_vs_teacher", compared(-0.08), "Worse than the teacher. RL minus teacher"),
    ("paired.rl_vs_teacher.n", 199, "Too few: 199 queries"),
    ("paired.rl_vs_plain.low", 0.0, "Better than no rewrite: not shown. RL minus no rewrite, top-1: +52.0 points ["),
    ("paired.rl_vs_plain", gap(-0.03, -0.052, -0.011), "Worse than no rewrite. RL minus no rewrite, top-1: -3.0 po"),
    ("paired.rl_vs_plain.high", 0.4, "The interval is impossible"),
    ("paired.rl_vs_teacher.ndcg.low", -0.01, "nDCG@10 may be worse than the teacher's by 1.0 points"),
    ("paired.rl_vs_teacher.recall.low", -0.3, "recall@10 may be worse"),
    ("paired.rl_vs_teacher.tenants.chengla.recall.low", -0.02, "recall@10 for chengla may be worse"),
    ("paired.rl_vs_teacher.tenants", {}, "tenants is empty"),
    ("kinds", {}, "kinds is empty"),
    ("kinds", None, "kinds is not in the evaluation"),
    ("kinds.complete", {}, "kinds.complete.difference.difference is not in the evaluation"),
    ("kinds.complete.difference.low", "0", "kinds.complete.difference.low is '0', which is no number"),
    ("kinds.rare words.difference", gap(-0.30, -0.40, -0.20), "in questions of the kind “rare words”: -30.0 points"),
    ("systems.rl.length.value", 21.1, "over 1.5 times"),
    ("systems.rl.copied.value", 0.051, "5.1% of the rewrites copy"),
    ("systems.rl.invented.value", 0.021, "hold a number that nobody mentioned"),
    ("systems.rl.zero_hit.value", 0.021, "find nothing"),
    ("systems.rl.cost.value", 25.1, "over 1 times"),
    ("systems.teacher.cost.value", 0.0, "over 1 times"),
    ("systems.rl.cost.value", math.nan, "systems.rl.cost.value is nan, which is no number"),
    ("systems.teacher.cost.value", None, "systems.teacher.cost.value is not in the evaluation"),
    ("paired.rl_vs_teacher.high", None, "paired.rl_vs_teacher.high is not in the evaluation"),
    ("paired.rl_vs_teacher.low", None, "paired.rl_vs_teacher.low is not in the evaluation"),
    ("paired.rl_vs_teacher.p", math.nan, "paired.rl_vs_teacher.p is nan"),
    ("paired.rl_vs_teacher.low", "0.5", "is '0.5', which is no number"),
    ("paired.rl_vs_teacher.n", True, "is True, which is no number"),
    ("paired", None, "is not in the evaluation"),
    ("systems", [], "is not in the evaluation"),
    ("leaks", None, "leaks.parts is not in the evaluation"),
    ("leaks.parts.ppo", None, "leaks.parts.ppo.rows is not in the evaluation"),
    ("leaks.parts.sft.same", 1, "The test leaked: 1 of its rows are among those of sft, and 0 nearly"),
    ("leaks.parts.ppo.alike", 3, "The test leaked: 0 of its rows are among those of ppo, and 3 nearly"),
    ("leaks.parts.more", {"rows": 9, "same": 0, "alike": 1}, "among those of more, and 1 nearly"),
    ("leaks.parts.sft.rows", 0, "compared with no rows of sft"),
    ("leaks.parts.sft.alike", "0", "leaks.parts.sft.alike is '0', which is no number"),
    ("leaks.threshold", 0.81, "looked for from 0.81 on only; 0.8 is wanted"),
    ("agreement.examiner", "model-a", "The examiner, model-a, is the training's judge, model-a"),
    ("agreement.examiner", " Model-A", "is the training's judge"),
    ("agreement.examiner", "vendor/model-a-2026-11-28", "is the training's judge"),
    ("agreement.examiner", "mod\u200bel-a", "is the training's judge"),
    ("agreement.judge", "unknown", "Nobody knows which model was the judge"),
    ("agreement.examiner", "", "Nobody knows which model was the examiner"),
    ("agreement", None, "agreement.examiner is not in the evaluation"),
    ("counts.examined", None, "counts.examined is not in the evaluation"),
    ("digests.knowledge_bases", [], "knowledge_bases names none"),
    ("digests.knowledge_bases", None, "knowledge_bases is not in the evaluation"),
    ("digests.parents.rl.sft_model", "f" * 64, "trained from another SFT model"),
]
DIGESTS = [
    "test", "predictions", "models.sft", "models.rl", "training.sft", "training.ppo",
    "parents.sft.base_model", "parents.sft.train", "parents.sft.dev",
    "parents.rl.base_model", "parents.rl.sft_model", "parents.rl.train", "parents.rl.dev",
]  # fmt: skip
"""All that a promoted RL model was made from and judged by."""


@pytest.mark.parametrize(("path", "value", "reason_part"), HELD, ids=[f"{path}={value}" for path, value, _ in HELD])
def test_a_single_fault_holds_the_rewriter_and_is_named(path: str, value: Any, reason_part: str) -> None:
    verdict = decide(changed(path, value), GATE)

    assert (verdict.promote, verdict.word) == (False, "hold")
    assert any(reason_part in reason for reason in verdict.reasons), verdict.reasons


@pytest.mark.parametrize("value", [None, "", "a" * 63, "a" * 65, "A" * 64, 7, ["a" * 64]])
@pytest.mark.parametrize("name", DIGESTS)
def test_a_parent_that_nobody_can_name_holds(name: str, value: Any) -> None:
    verdict = decide(changed(f"digests.{name}", value), GATE)

    assert not verdict.promote
    assert any(f"digests.{name} is" in reason for reason in verdict.reasons), verdict.reasons


def test_a_model_that_nobody_examined_needs_no_examiner() -> None:
    evaluation = changed("agreement", {"examiner": "unknown", "judge": "unknown"})

    assert not decide(evaluation, GATE).promote
    assert decide(evaluation | {"counts": {"examined": 0}}, GATE).promote


def test_a_candidate_of_an_unknown_kind_is_held() -> None:
    assert "'other' is no candidate that this gate knows." in decide(good() | {"candidate": "other"}, GATE).reasons


def test_not_shown_says_how_many_queries_would_show_it() -> None:
    evaluation = changed("paired.rl_vs_teacher.low", -0.01)
    evaluation["power"] = {"interesting": {"difference": 0.03, "queries": 1270}}

    assert any("+3.0 points takes about 1,270 queries" in reason for reason in decide(evaluation, GATE).reasons)


def test_an_sft_model_alone_is_judged_by_its_own_numbers() -> None:
    evaluation = good()
    for name in ("teacher", "plain"):
        evaluation["paired"][f"sft_vs_{name}"] = evaluation["paired"].pop(f"rl_vs_{name}")
    evaluation["systems"]["sft"] = evaluation["systems"].pop("rl")

    assert not decide(evaluation, GATE).promote
    assert decide({**evaluation, "candidate": "sft"}, GATE).promote


numbers = st.one_of(st.floats(-1, 1), st.just(math.nan), st.just(math.inf), st.none(), st.text(max_size=2))


@pytest.mark.slow
@given(numbers, numbers, numbers, numbers)
def test_nothing_but_a_sure_gain_is_ever_promoted(low: Any, p: Any, ndcg: Any, cost: Any) -> None:
    evaluation = good()
    versus = evaluation["paired"]["rl_vs_teacher"]
    versus.update(low=low, p=p)
    versus["ndcg"]["low"] = ndcg
    evaluation["systems"]["rl"]["cost"]["value"] = cost
    verdict = decide(evaluation, GATE)

    if verdict.promote:
        assert low > 0 and p < GATE.p and ndcg > -GATE.margin and cost <= 25.0
    else:
        assert verdict.reasons


@pytest.mark.slow
@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(max_size=3), lambda inner: st.dictionaries(
    st.sampled_from(["paired", "systems", "rl_vs_teacher", "low", "tenants", "candidate"]), inner, max_size=4
), max_leaves=12))  # fmt: skip
def test_rubbish_is_held_with_a_reason(rubbish: Any) -> None:
    verdict = decide(rubbish if isinstance(rubbish, dict) else {}, GATE)

    assert not verdict.promote
    assert verdict.reasons


def test_the_reasons_of_a_single_tenant_are_not_repeated() -> None:
    evaluation = changed("paired.rl_vs_teacher.ndcg.low", -0.2)
    evaluation["paired"]["rl_vs_teacher"]["tenants"] = {"fivedoctors": evaluation["paired"]["rl_vs_teacher"].copy()}

    assert len(decide(evaluation, GATE).reasons) == 1


@pytest.mark.parametrize(
    "difference",
    [
        gap(-0.30, -0.65, 0.05),
        gap(-0.02, -0.03, -0.01),
        gap(0.0, 0.0, 0.0),
        gap(None, None, None, 0),
        gap(-1.0, None, None, 1),
    ],
    ids=[
        "not shown with few questions",
        "within the margin",
        "every row alike",
        "none of the kind",
        "one conversation",
    ],
)
def test_a_kind_of_question_holds_only_where_a_loss_beyond_the_margin_is_shown(difference: dict[str, Any]) -> None:
    assert decide(changed("kinds.rare words.difference", difference), GATE).promote


def test_a_promotion_names_the_kind_of_question_that_surely_loses() -> None:
    loses = decide(changed("kinds.complete.difference", gap(-0.07, -0.125, -0.023)), GATE)
    may_lose = decide(changed("kinds.complete.difference", gap(-0.07, -0.15, 0.01)), GATE)

    assert loses.promote and may_lose.promote
    assert loses.reasons[-1] == (
        "Yet it is below the teacher in questions of the kind “complete”: -7.0 points [-12.5, -2.3], 40 queries; "
        "a loss beyond 2.0 points is not shown."
    )
    assert not any("complete" in reason for reason in may_lose.reasons)


def test_a_loss_that_one_kind_alone_would_show_is_none_among_many() -> None:
    doubtful = gap(-0.06, -0.099, -0.021)  # p .022 of a loss beyond two points
    alone = changed("kinds", {"rare words": {"difference": doubtful}})

    assert not decide(alone, GATE).promote
    assert decide(changed("kinds.rare words.difference", doubtful), GATE).promote


@pytest.mark.parametrize(
    ("difference", "shown"),
    [
        (gap(-0.231, -0.417, 0.0, 13), False),
        (gap(-0.231, -0.417, -0.019, 13), False),
        (gap(-0.231, -0.300, -0.162, 130), True),
        (gap(-0.06, -0.30, -0.03, 40), True),
        (gap(-0.06, -0.07, 0.10, 40), False),
        (gap(-0.30, -0.30, -0.30, 3), True),
        (gap(-0.30, -0.30, 0.30, 3), False),
    ],
)
@pytest.mark.parametrize("kinds", [1, 2, 8])
def test_a_loss_that_is_called_shown_is_in_the_whole_interval_beside_it(
    difference: dict[str, Any], shown: bool, kinds: int
) -> None:
    """A loss above 2 points was "shown" beside [-41.7, +0.0]: by the width of a lopsided interval."""
    rest = {f"kind {number}": {"difference": compared()} for number in range(kinds - 1)}
    verdict = decide(changed("kinds", {"rare words": {"difference": difference}, **rest}), GATE)

    assert verdict.promote is not shown
    assert any("a loss beyond 2.0 points is shown" in reason for reason in verdict.reasons) is shown


@pytest.mark.parametrize(
    ("pair", "metric", "difference", "line"),
    [
        ("history_vs_teacher", "", gap(0.11, 0.05, 0.17), "Question + history is better than the teacher by gold"),
        ("history_vs_teacher", "recall", gap(0.11, 0.05, 0.17),
         "Question + history is better than the teacher by recall@10: +11.0 points [+5.0, +17.0]."),
        ("history_vs_teacher", "ndcg", gap(0.11, -0.01, 0.2), ""),
        ("history_vs_teacher", "", gap(-0.11, -0.2, -0.05), ""),
        ("teacher_vs_plain", "", gap(-0.584, -0.63, -0.54),
         "The teacher is worse than no rewrite by gold passage first: -58.4 points [-63.0, -54.0]."),
        ("teacher_vs_plain", "ndcg", gap(-0.5, -0.6, -0.4), "The teacher is worse than no rewrite by nDCG@10"),
        ("teacher_vs_plain", "", gap(0.5, 0.4, 0.6), ""),
        ("teacher_vs_plain", "", gap(None, None, None), ""),
        ("teacher_vs_plain", "", gap(-5, -6, -4), ""),
    ],
)  # fmt: skip
def test_the_verdict_says_where_something_simpler_beats_the_teacher(
    pair: str, metric: str, difference: dict[str, Any], line: str
) -> None:
    even = gap(0.0, -0.1, 0.1)
    compared_pair = {**even, "ndcg": even, "recall": even, **({metric: difference} if metric else difference)}
    verdict = decide(good() | {"paired": {**good()["paired"], pair: compared_pair}}, GATE)
    held = decide({**good(), "paired": {**good()["paired"], pair: compared_pair}, "kinds": {}}, GATE)

    assert verdict.promote and len(verdict.reasons) == (2 if line else 1)
    assert verdict.reasons[-1].startswith(line) if line else True
    assert not held.promote and len(held.reasons) == (2 if line else 1)


BY_LABELS = GateConfig(by="labels")


def judged_evaluation(share: float = 1.0) -> dict[str, Any]:
    """The good one, in which the examiner judged 700 rows without gold."""
    evaluation = good()
    evaluation["counts"] = {"examined": 0, "judged": 700}
    levels = evaluation["systems"]
    evaluation["systems"] = {
        name: {**levels.get(name, {}), "first_judged": {"value": share}} for name in ("plain", "teacher", "rl")
    }
    return evaluation


def test_a_gate_by_labels_promotes_and_says_that_it_is_judged_and_by_whom() -> None:
    verdict = decide(judged_evaluation(), BY_LABELS)

    assert verdict.promote
    assert verdict.reasons == [
        "RL minus teacher, right passage first, judged: +6.0 points [+4.0, +8.0], p 0.0010, 1000 queries.",
        "Yet this is judged, not gold: model-b judged 700 of the test's rows, and no person did.",
    ]


@pytest.mark.parametrize(("share", "promoted"), [(0.95, True), (0.949, False)])
def test_by_labels_nearly_every_first_passage_must_have_a_grade(share: float, promoted: bool) -> None:
    verdict = decide(judged_evaluation(share), BY_LABELS)

    assert verdict.promote is promoted
    assert promoted or "94.9% have a grade of the examiner; at least 95% are needed" in " ".join(verdict.reasons)


def test_by_labels_the_judge_of_the_training_may_not_be_the_examiner_though_it_scored_no_rewrite() -> None:
    own_judge = judged_evaluation() | {"agreement": {"examiner": "model-a", "judge": "model-a"}}

    assert "is the training's judge" in " ".join(decide(own_judge, BY_LABELS).reasons)


def test_where_every_row_has_gold_both_gates_say_the_same_of_the_figures() -> None:
    assert decide(good(), GATE) == decide(good(), BY_LABELS)
    assert decide(judged_evaluation(), GATE).reasons == [
        "The examiner judged 700 rows without gold, and this gate goes by gold alone (gate.by)."
    ]


def cross_fitted(n: int = 60, folds: int = 2) -> dict[str, Any]:
    """The same of a sheet without a locked test."""
    evaluation = good()
    digests = evaluation["digests"]
    parts = {name: copy.deepcopy(digests[name]) for name in ("test", "models", "training", "parents")}
    del digests["test"]
    digests["folds"] = {str(number): copy.deepcopy(parts) for number in range(1, folds + 1)}
    evaluation["cross_fitted"] = {"folds": folds}
    evaluation["counts"]["rows"] = evaluation["paired"]["rl_vs_teacher"]["n"] = n
    return evaluation


def test_a_small_cross_fitted_sheet_is_promoted_and_the_verdict_says_so_first() -> None:
    verdict = decide(cross_fitted(), GATE)

    assert verdict.promote
    assert verdict.reasons[0].startswith(
        "Cross-fitted: 60 questions, each rewritten by one of 2 models that did not learn from it."
    )
    assert "+6.0 points [+4.0, +8.0]" in verdict.reasons[0]


def test_a_cross_fitted_sheet_that_is_too_small_is_held_with_its_interval() -> None:
    verdict = decide(cross_fitted(n=49), GATE)

    assert verdict.word == "hold" and verdict.reasons[0].startswith("Cross-fitted: 49 questions")
    assert verdict.reasons[1] == "Too few: 49 queries were cross-fitted, and 50 are wanted. Label more."


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        (("folds", "2"), "digests.folds does not name every fold"),
        (("folds", "2", "test"), "digests.folds.2.test is not in the evaluation."),
        (("folds", "1", "parents", "sft", "train"), "digests.folds.1.parents.sft.train is not in the evaluation."),
        (("folds", "1", "models", "rl"), "digests.folds.1.models.rl is not in the evaluation."),
    ],
)
def test_each_fold_must_be_named_with_its_models_and_what_they_learned_from(
    path: tuple[str, ...], reason: str
) -> None:
    evaluation = cross_fitted()
    node = evaluation["digests"]
    for name in path[:-1]:
        node = node[name]
    del node[path[-1]]

    assert any(reason in line for line in decide(evaluation, GATE).reasons)


def test_a_sibling_that_learned_from_another_sft_model_holds() -> None:
    evaluation = cross_fitted()
    evaluation["digests"]["folds"]["2"]["parents"]["rl"]["sft_model"] = "f" * 64

    assert "RL was trained from another SFT model than the one beside it." in decide(evaluation, GATE).reasons
