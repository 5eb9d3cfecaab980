"""Each further model that a locked test judges needs more proof; a run again or resumed is no further one."""

from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import orjson
import pytest

from qinglan.errors import ConflictError, DataError
from qinglan.evaluation.gates import rewriter_gate, style_gate
from qinglan.evaluation.gates.gate_limits import Limits
from qinglan.evaluation.gates.kinds import REWRITER
from qinglan.evaluation.gates.locked_test_uses import count_use, own_store_faults, use_faults
from qinglan.evaluation.gates.verdict import held_for
from qinglan.store import STORE_VARIABLE, open_store
from tests.qinglan.evaluation.gates import test_rewriter_gate as rewriter
from tests.qinglan.evaluation.gates import test_style_gate as style

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


def evaluated(uses: Any, model: str = MODELS[0]) -> dict[str, Any]:
    evaluation = rewriter.good()
    evaluation["digests"]["models"]["rl"] = model
    return {**evaluation, "test_uses": uses}


def test_a_model_must_have_its_number_on_the_stores_list(store: Path) -> None:
    opened = open_store(str(store))
    first, second = (count_use(KEYS, "rewriter", model) for model in MODELS[:2])
    assert first is not None and second is not None

    assert use_faults(opened, evaluated(first)) == use_faults(opened, evaluated(second, MODELS[1])) == []
    for uses, model, reason in [
        ({**second, "count": 1}, MODELS[1], "has judged 1 models by the evaluation, and 2 by its store's list"),
        ({**second, "count": 3}, MODELS[1], "has judged 3 models by the evaluation, and 2 by its store's list"),
        ({**second, "count": None}, MODELS[1], "has judged None models"),
        (second, MODELS[2], "lacks this one"),
        ({**first, "test": "f" * 64}, MODELS[0], "lacks this one"),
        ({**first, "line": "style"}, MODELS[0], "lacks this one"),
    ]:
        [fault] = use_faults(opened, evaluated(uses, model))
        assert reason in fault


@pytest.mark.parametrize(
    "uses",
    [1, 0, False, "many", [], [1], {}, {"count": 1}, {"test": "../x", "line": "rewriter", "count": 1},
     {"test": "f" * 64, "line": "../x", "count": 1}, {"test": "f" * 63, "line": "rewriter", "count": 1},
     {"test": None, "line": None, "count": None}],
)  # fmt: skip
def test_a_test_that_cannot_be_on_a_list_is_a_reason_against(uses: Any, store: Path) -> None:
    [fault] = use_faults(open_store(str(store)).prepare(), evaluated(uses))

    assert "nobody can tell how many models its locked test has judged" in fault


def test_what_was_not_counted_has_no_list() -> None:
    assert (
        use_faults(open_store("nowhere"), rewriter.good()) == use_faults(open_store("nowhere"), evaluated(None)) == []
    )


GARBAGE = {
    "half a document": b"{", "nothing": b"", "a list": b"[]", "no model": b"{}", "no digest": b'{"model": "x"}',
    "a number": b'{"model": 1}', "two models": b'{"model": "%s", "model": "%s"}' % (b"b" * 64, b"c" * 64),
    "upper case": b'{"model": "%s"}' % (b"B" * 64), "no UTF-8": b"\xff\xfe",
}  # fmt: skip


@pytest.mark.parametrize("content", GARBAGE.values(), ids=GARBAGE)
def test_an_entry_that_cannot_be_read_is_named(content: bytes, store: Path) -> None:
    uses = count_use(KEYS, "rewriter", MODELS[0])
    assert uses is not None
    (store / "tests" / uses["test"] / "rewriter" / "000002.json").write_bytes(content)

    [fault] = use_faults(open_store(str(store)), evaluated(uses))
    assert "000002.json" in fault
    with pytest.raises(DataError, match=r"000002\.json"):
        count_use(KEYS, "rewriter", MODELS[1])


@pytest.mark.parametrize(
    "name",
    ["999999.json", "1000000.json", "000003.json", "000000.json", "0000002.json", "0000001.json",
     "00000000000002.json", "9" * 200 + ".json"],
)  # fmt: skip
def test_a_planted_entry_is_named_and_ends_every_count_at_once(name: str, store: Path) -> None:
    """After 999999.json, the next number had seven digits, which no list showed: the count never ended."""
    uses = count_use(KEYS, "rewriter", MODELS[0])
    assert uses is not None
    (store / "tests" / uses["test"] / "rewriter" / name).write_bytes(b'{"model": "%s"}' % (b"b" * 64))

    for model in MODELS:
        with pytest.raises(DataError, match="does not belong there") as refused:
            count_use(KEYS, "rewriter", model)
        assert name in str(refused.value) or "000001.json" in str(refused.value)
    [fault] = use_faults(open_store(str(store)), evaluated(uses))
    assert "does not belong there" in fault


@pytest.mark.parametrize("name", ["x.json", "00002.json", "000002.JSON", "٠٠٠٠٠٢.json", "000002.json.bak"])
def test_other_files_beside_a_list_count_nothing(name: str, store: Path) -> None:
    uses = count_use(KEYS, "rewriter", MODELS[0])
    assert uses is not None
    (store / "tests" / uses["test"] / "rewriter" / name).write_text("{")

    assert number(KEYS, "rewriter", MODELS[1]) == 2


def test_an_entry_that_was_deleted_is_noticed(store: Path) -> None:
    uses = [count_use(KEYS, "rewriter", model) for model in MODELS][-1]
    assert uses is not None
    (store / "tests" / uses["test"] / "rewriter" / "000002.json").unlink()

    [fault] = use_faults(open_store(str(store)), evaluated(uses, MODELS[2]))
    assert "entry 000002 is gone" in fault


def test_a_list_whose_next_entry_is_always_taken_ends_in_an_error(store: Path) -> None:
    opened = open_store(str(store)).prepare()
    opened.backend.create = lambda key, data: False  # type: ignore[method-assign]

    with pytest.raises(ConflictError, match="was taken 100 times"):
        opened.add_use("a" * 64, "rewriter", "b" * 64, {})


@pytest.mark.parametrize(
    ("uses", "counted", "promoted"),
    [
        ({"test": "a" * 64, "line": "rewriter", "count": 1}, True, True),
        ({"test": "a" * 64, "line": "rewriter", "count": 1}, False, True),
        (None, False, True), (None, True, False), ("absent", False, True), ("absent", True, False),
    ],
)  # fmt: skip
def test_a_trust_policy_can_require_that_models_are_counted(uses: Any, counted: bool, promoted: bool) -> None:
    evaluation = rewriter.good() if uses == "absent" else evaluated(uses)
    limits = Limits.parse({"counted": counted}, "trust.yaml: evaluate")

    verdict = REWRITER.decide_within(evaluation, rewriter.GATE, limits)

    assert verdict.promote is promoted
    assert promoted or (verdict.word, verdict.reasons[0][:11]) == ("hold", "Not counted")


def test_the_gate_holds_a_model_that_its_own_store_does_not_list(store: Path, tmp_path: Path) -> None:
    uses = count_use(KEYS, "rewriter", MODELS[0])
    assert own_store_faults(evaluated(uses)) == []

    [fault] = own_store_faults(evaluated(uses, MODELS[1]))
    assert "lacks this one" in fault
    held = held_for(rewriter_gate.decide(evaluated(uses, MODELS[1]), rewriter.GATE), [fault])
    assert (held.promote, held.word, held.reasons[0]) == (False, "hold", fault)
    assert held.reasons[-1].startswith("Models that this locked test has judged: 1"), "descriptions stay"
