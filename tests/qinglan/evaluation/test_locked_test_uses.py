"""Each further model that a locked test judges needs more proof; a run again or resumed is no further one."""

from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import orjson
import pytest

from qinglan.errors import DataError
from qinglan.evaluation import rewriter_gate, style_gate
from qinglan.evaluation.locked_test_uses import count_use, listed_use
from qinglan.store import STORE_VARIABLE, open_store
from tests.qinglan.evaluation import test_rewriter_gate as rewriter
from tests.qinglan.evaluation import test_style_gate as style

MODELS = ["a" * 64, "b" * 64, "c" * 64]
KEYS = ["t|怎么吃|", "t|多少钱|上一句"]


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(STORE_VARIABLE, str(tmp_path / "store"))
    return tmp_path / "store"


def number(keys: list[str], line: str, model: str) -> int:
    uses = count_use(keys, line, model)
    assert uses is not None
    return int(uses["count"])


def test_each_model_counts_once_in_the_order_in_which_it_came() -> None:
    assert [number(KEYS, "rewriter", model) for model in MODELS] == [1, 2, 3]
    assert [number(KEYS, "rewriter", model) for model in reversed(MODELS)] == [3, 2, 1], "run again: the same numbers"


@pytest.mark.parametrize(
    ("keys", "line", "count"),
    [
        (KEYS, "rewriter", 2),
        (KEYS[::-1], "rewriter", 2),
        (KEYS[:1], "rewriter", 1),
        ([*KEYS, "t|又一个|"], "rewriter", 1),
        (["other|怎么吃|", KEYS[1]], "rewriter", 1),
        (KEYS, "style", 1),
        (KEYS, "style-small", 1),
    ],
    ids=["the same test", "in another order", "fewer rows", "more rows", "another tenant's", "style", "small style"],
)
def test_a_test_is_known_by_its_questions(keys: list[str], line: str, count: int) -> None:
    number(KEYS, "rewriter", MODELS[0])

    assert number(keys, line, MODELS[1]) == count


def test_the_list_outlives_every_run_and_is_not_counted_without_a_store(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    number(KEYS, "rewriter", MODELS[0])
    [entry] = store.rglob("tests/*/rewriter/000001.json")
    assert orjson.loads(entry.read_bytes())["model"] == MODELS[0]

    monkeypatch.delenv(STORE_VARIABLE)
    assert count_use(KEYS, "rewriter", MODELS[1]) is None


def test_two_that_are_judged_at_once_get_two_numbers() -> None:
    together, numbers = Barrier(8), list[int]()

    def judge(model: str) -> None:
        together.wait()
        numbers.append(number(KEYS, "rewriter", model))

    threads = [Thread(target=judge, args=(f"{at:x}" * 64,)) for at in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(numbers) == list(range(1, 9))


@pytest.mark.parametrize(
    ("test", "line", "model"),
    [
        ("../names", "rewriter", "a" * 64), ("A" * 64, "rewriter", "a" * 64), ("a" * 63, "rewriter", "a" * 64),
        ("a" * 64, "..", "a" * 64), ("a" * 64, "re/writer", "a" * 64), ("a" * 64, "", "a" * 64),
        ("a" * 64, "rewriter", "x"), ("a" * 64, "rewriter", ""), ("a" * 64, "rewriter", "../../x"),
    ],
)  # fmt: skip
def test_no_list_lies_elsewhere(test: str, line: str, model: str, store: Path) -> None:
    with pytest.raises(DataError):
        open_store(str(store)).add_use(test, line, model, {})


def counted(count: Any, p: float = 0.001) -> dict[str, Any]:
    evaluation = rewriter.changed("paired.rl_vs_teacher.p", p)
    return {**evaluation, "test_uses": {"test": "a" * 64, "line": "rewriter", "count": count}}


@pytest.mark.parametrize(
    ("count", "p", "promoted"),
    [
        (1, 0.049, True), (2, 0.0249, True), (2, 0.025, False), (2, 0.049, False), (5, 0.0099, True),
        (5, 0.01, False), (50, 0.00099, True), (50, 0.001, False), (1000, 0.0001, False),
    ],
)  # fmt: skip
def test_p_must_be_below_the_level_divided_by_the_number_of_models(count: int, p: float, promoted: bool) -> None:
    verdict = rewriter_gate.decide(counted(count, p), rewriter.GATE)

    assert verdict.promote is promoted
    assert verdict.reasons[-1].startswith(
        f"Models that this locked test has judged: {count}; p must be below 0.05 / "
    )
    assert promoted or verdict.reasons[0].startswith("Better than the teacher: not shown")


@pytest.mark.parametrize(("count", "promoted"), [(1, True), (2, True), (51, False)])
def test_a_style_model_is_judged_by_the_same_rule(count: int, promoted: bool) -> None:
    evaluation = {**style.good(), "test_uses": {"test": "a" * 64, "line": "style", "count": count}}

    assert style_gate.decide(evaluation, style.GATE).promote is promoted


@pytest.mark.parametrize(
    "uses", [{}, {"count": 0}, {"count": -1}, {"count": 0.5}, {"count": None}, {"count": "1"}, 1, []]
)
def test_a_count_that_nobody_can_have_counted_holds(uses: Any) -> None:
    assert not rewriter_gate.decide({**rewriter.good(), "test_uses": uses}, rewriter.GATE).promote


@pytest.mark.parametrize("uses", [None, "absent"])
def test_an_evaluation_that_was_not_counted_is_judged_as_the_first(uses: Any) -> None:
    evaluation = {**rewriter.good(), **({} if uses else {"test_uses": None})}

    assert rewriter_gate.decide(evaluation, rewriter.GATE).promote


def test_the_store_tells_which_number_a_released_model_has(store: Path) -> None:
    opened = open_store(str(store))
    first, second = (count_use(KEYS, "rewriter", model) for model in MODELS[:2])
    assert first is not None and second is not None

    def evaluated(model: str, uses: Any) -> dict[str, Any]:
        evaluation = rewriter.good()
        evaluation["digests"]["models"]["rl"] = model
        return {**evaluation, "test_uses": uses}

    assert listed_use(opened, evaluated(MODELS[1], second)) == 2
    assert listed_use(opened, evaluated(MODELS[1], {**second, "count": 1})) == 2, (
        "the list says so, not the evaluation"
    )
    assert listed_use(opened, evaluated(MODELS[2], second)) == 0
    assert listed_use(opened, evaluated(MODELS[0], {**first, "test": "f" * 64})) is None
    for uses in (None, 1, {}, {"test": "../x", "line": "rewriter"}, {"test": "f" * 64, "line": "../x"}):
        assert listed_use(opened, evaluated(MODELS[0], uses)) is None


def test_garbage_on_the_list_closes_no_door(store: Path) -> None:
    uses = count_use(KEYS, "rewriter", MODELS[0])
    assert uses is not None
    (store / "tests" / uses["test"] / "rewriter" / "000002.json").write_text("{")

    assert listed_use(open_store(str(store)), {**rewriter.good(), "test_uses": uses}) is None
