"""A plan counts the sheet's rows, prices them, and warns before money is spent."""

import json
import re
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from commands.plan.table import prepayment_in_words
from pipelines.checks.plan import make_plan
from pipelines.checks.promotion import promotion_lines
from pipelines.lines.config import load_config
from pipelines.lines.rewriter import REWRITER, RunConfig, StandIns
from qinglan.errors import DataError
from qinglan.models.base_weights import WEIGHTS_VARIABLE
from tests.commands.conftest import Here

TODAY = date(2026, 11, 21)


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    rows = [{"question": f"那它一天吃几次{n}", "need": "虾青素一天吃几次" if n < 4 else ""} for n in range(10)]
    path = tmp_path / "q.jsonl"
    text = [json.dumps(row, ensure_ascii=False) for row in [*rows, {"question": ""}, {"question": True}]]
    path.write_text("\n".join(text), encoding="utf-8")
    return path


def test_a_plan_counts_calls_and_leaves_out_what_is_no_question(questions: Path) -> None:
    plan = make_plan(load_config("fivedoctors", "gpt", questions=questions), TODAY)

    assert (plan.rows, plan.unfit) == (10, 2)
    assert [row.partition(":")[0] for row in plan.unfit_rows] == ["q.jsonl line 11", "q.jsonl line 12"]
    data = [(step.what, step.calls) for step in plan.steps if step.step in ("generate", "validate")]
    assert data == [("rewrites", 10), ("needs", 6), ("retrievals", 20)]


def test_a_plan_counts_the_most_that_training_and_evaluation_can_ask(questions: Path) -> None:
    config = load_config("fivedoctors", "demo", questions=questions)
    calls = {(step.step, step.what): step.calls for step in make_plan(config, TODAY).steps}
    rollouts = 48 * 128

    assert calls["ppo", "judgements"] == round(0.3 * (rollouts + 8))
    assert calls["ppo", "retrievals"] == rollouts + 2 * 8
    assert calls["evaluate", "judgements"] == 5 * 1


def test_labels_are_counted_for_rows_without_gold_and_within_their_limits(questions: Path, tmp_path: Path) -> None:
    config = load_config("fivedoctors", "gpt", questions=questions)
    few = config.model_copy(update={"label": config.label.model_copy(update={"calls": 45})})
    off = config.model_copy(update={"label": config.label.model_copy(update={"calls": 0})})
    labelled = tmp_path / "gold.jsonl"
    rows = questions.read_text(encoding="utf-8").splitlines()[:10]
    labelled.write_text("\n".join(json.dumps({**json.loads(row), "gold": "k1"}) for row in rows), encoding="utf-8")

    def counted(config: RunConfig) -> dict[str, int]:
        return {step.what: step.calls for step in make_plan(config, TODAY).steps if step.step == "label"}

    assert counted(config) == {"labels": 40, "choices": 10, "confirmations": 40, "retrievals": 10}
    assert sum(count for what, count in counted(few).items() if what != "retrievals") == 45
    assert counted(off) == counted(config.model_copy(update={"questions": labelled})) == {}


def by_labels(config: RunConfig) -> RunConfig:
    evaluate = config.evaluate.model_copy(update={"gate": config.evaluate.gate.model_copy(update={"by": "labels"})})
    return config.model_copy(update={"evaluate": evaluate})


def test_a_gate_by_labels_pays_for_the_first_passage_of_every_system_at_most(questions: Path) -> None:
    config = load_config("fivedoctors", "gpt", questions=questions)

    def counted(config: RunConfig) -> list[int]:
        steps = make_plan(config, TODAY).steps
        return [step.calls for step in steps if (step.step, step.what) == ("evaluate", "labels")]

    assert (counted(config), counted(by_labels(config))) == ([], [5 * 1])


@pytest.mark.slow
def test_by_labels_the_rows_of_the_test_need_no_gold(tmp_path: Path) -> None:
    sheet = sheet_of(tmp_path, [("train", "k1")] * 256 + [("dev", "")] + [("test", "")] * 200)
    config = load_config("fivedoctors", "gpt", questions=sheet)
    [few] = make_plan(config, TODAY).promotion.obstacles

    assert "0 rows with gold passages" in few.reason
    assert make_plan(by_labels(config), TODAY).promotion.obstacles == ()


def test_the_cost_is_tokens_times_the_profiles_prices(questions: Path) -> None:
    plan = make_plan(load_config("fivedoctors", "gpt", questions=questions), TODAY)
    rewrites = plan.steps[0]

    assert rewrites.cost == pytest.approx((rewrites.input_tokens * 5 + rewrites.output_tokens * 30) / 1e6)
    assert plan.cost == pytest.approx(sum(step.cost for step in plan.steps))


def test_a_critic_that_cannot_be_read_is_named_by_the_plan_and_does_not_end_it(
    questions: Path, tmp_path: Path, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(WEIGHTS_VARIABLE, str(tmp_path))
    critic = tmp_path / "Qwen" / "Qwen3-1.7B"
    critic.mkdir(parents=True)

    ended = here("plan", "fivedoctors", "--profile", "gpt", "--questions", questions, "--json")

    plan = json.loads(ended.out)
    assert [line for line in plan["missing"] if f"{critic}/config.json: cannot be read" in line]
    assert plan["fit"] == []


@pytest.mark.parametrize(("gold", "reason"), [("k9", "200 rows name gold passages"), ("k1", "no row is for dev")])
def test_a_plan_ends_with_the_lines_and_the_exit_code_of_the_run_that_would_be_refused(
    tmp_path: Path, here: Here, gold: str, reason: str
) -> None:
    sheet, base = sheet_of(tmp_path, [("train", gold)] * 200), tmp_path / "kb.jsonl"
    base.write_text('{"id": "k1", "content": "段"}\n', encoding="utf-8")
    words = ("fivedoctors", "--questions", sheet, "--knowledge-base", base)

    plan, run = here("plan", *words), here("run", *words, "--out", tmp_path / "run")

    assert plan.code == run.code == DataError.exit_code
    assert reason in run.errors
    _, _, refusal = run.errors.partition("qinglan: ")
    assert plan.errors.splitlines()[1:] == refusal.splitlines()
    assert not (tmp_path / "run").exists()


def test_a_sheet_without_a_history_is_warned_of(tmp_path: Path) -> None:
    sheet = tmp_path / "q.jsonl"

    def warnings(profile: str, **row: str) -> str:
        sheet.write_text(json.dumps({"question": "那它一天吃几次", "split": "train", **row}) + "\n", encoding="utf-8")
        return " ".join(make_plan(load_config("fivedoctors", profile, questions=sheet), TODAY).warnings)

    assert "No row has a history" in warnings("gpt") and "copies" not in warnings("gpt")
    assert "The stand-in teacher then copies most questions" in warnings("demo")
    assert "history" not in warnings("gpt", history_summary="用户：有虾青素吗")


def test_the_plan_prices_prepaid_calls_beside_live_ones(questions: Path) -> None:
    plan = make_plan(load_config("fivedoctors", "gpt", questions=questions), TODAY)

    paid = [step for step in plan.steps if step.model]
    assert [step.prepaid_cost and step.prepaid_cost / step.cost for step in paid] == [0.5, 0.5, *[None] * 7]
    saved = (paid[0].cost + paid[1].cost) / 2
    assert plan.prepaid_cost == pytest.approx(plan.cost - saved)
    assert f"{saved:.2f} USD" in prepayment_in_words(plan)


@pytest.mark.parametrize("url", ["https://api.deepseek.com/v1", "http://127.0.0.1:8000/v1"])
def test_the_plan_offers_no_prepayment_at_a_host_without_batches(questions: Path, url: str) -> None:
    config = load_config("fivedoctors", "gpt", questions=questions)
    models: dict[str, Any] = {
        role: model.model_copy(update={"base_url": url, "model": "m", "temperature": None})
        for role, model in config.gateway.models().items()
    }
    plan = make_plan(config.model_copy(update={"gateway": config.gateway.model_copy(update=models)}), TODAY)

    assert plan.prepaid_cost == plan.cost > 0
    assert prepayment_in_words(plan) == ""


def test_a_stale_price_and_a_small_budget_are_warned_of(questions: Path) -> None:
    config = load_config("fivedoctors", "gpt", questions=questions)
    poor = config.model_copy(update={"gateway": config.gateway.model_copy(update={"budget": 0.001})})

    warnings = " ".join(make_plan(poor, TODAY).warnings)

    assert "ends this run early" in warnings
    assert "teacher's price was read 135 days ago (2026-07-09)" in warnings
    assert not [line for line in make_plan(config, date(2026, 7, 10)).warnings if "price" in line or "ends" in line]


@pytest.mark.slow
def test_rows_that_convert_will_leave_out_as_near_duplicates_are_told_before_anything_is_paid(tmp_path: Path) -> None:
    marks = [*[("train", "")] * 150, ("dev", ""), ("test", "")]
    rows = [
        {
            "question": f"雪松帐篷怎么洗{at % 2}号" if at < 100 else f"第{at}款{'甲乙丙丁戊'[at % 5] * 9}重多少",
            "split": split,
        }
        for at, (split, _) in enumerate(marks)
    ]
    rows[-1]["question"] = "雪松帐篷怎么洗0号"
    sheet = tmp_path / "q.jsonl"

    def planned() -> tuple[list[str], list[str]]:
        sheet.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
        plan = make_plan(load_config("fivedoctors", "demo", questions=sheet), TODAY)
        refusals = [refusal.reason for refusal in plan.promotion.refusals]
        return refusals, [line for line in plan.warnings if "nearly repeat" in line]

    [short], _ = planned()
    rows[:0] = [{"question": f"要{at}{at}{at}还是{at}", "split": "train"} for at in range(40)]
    enough = planned()
    rows += [{"question": f"问{at}{at}{at}怎么{at}", "split": "train"} for at in range(300, 900)]

    assert "150 rows for training" in short and "test 100 are left" in short
    refusals, [warning] = enough
    assert refusals == [] and warning.startswith("50 of 190 training rows") and "140 are left" in warning
    assert planned() == ([], [])


def test_a_dev_that_only_repeats_the_test_is_refused_where_sft_runs(tmp_path: Path) -> None:
    rows = [{"question": f"第{at}款{'甲乙丙丁戊'[at % 5] * 9}重多少", "split": "train"} for at in range(200)]
    rows += [{"question": "雪松帐篷怎么洗", "split": split} for split in ("dev", "test")]
    sheet = tmp_path / "q.jsonl"
    sheet.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    config = load_config("fivedoctors", "demo", questions=sheet)

    whole, short = (
        make_plan(config, TODAY, stages=REWRITER.until(stage)).promotion.refusals for stage in ("sft", "convert")
    )

    [refusal] = whole
    assert "all 1 rows of dev nearly repeat" in refusal.reason and short == ()


@pytest.mark.parametrize(("profile", "longest", "tokens"), [("demo", "128", "2,0"), ("gpt", "512", "1,6")])
def test_long_histories_and_rows_too_long_for_sft_are_named_before_anything_is_paid(
    tmp_path: Path, profile: str, longest: str, tokens: str
) -> None:
    path = tmp_path / "q.jsonl"
    long = {"id": "long", "question": "几次", "history_summary": "聊" * 2000}
    endless = {"id": "endless", "question": "几次", "user_profile": "老" * 2000}
    path.write_text("\n".join(map(json.dumps, [{"question": "一天吃几次"}] * 20 + [long, endless])), encoding="utf-8")
    config = load_config("fivedoctors", profile, questions=path, sft={"max_length": 1024})

    refused, trimmed = [line for line in make_plan(config, TODAY).warnings if "max_length" in line]
    assert "sft.max_length 1,024 ('endless'" in refused
    assert f"more than {longest} tokens ('long': {tokens}" in trimmed


def sheet_of(folder: Path, rows: list[tuple[str, str]]) -> Path:
    """Rows of one conversation each, with their split and their gold passages."""
    path = folder / "marked.jsonl"
    lines = [
        {"id": f"q{at}", "question": f"一天吃几次{at}", "need": "一天吃几次", "split": split, "gold": gold}
        for at, (split, gold) in enumerate(rows)
    ]
    path.write_text("\n".join(json.dumps(line, ensure_ascii=False) for line in lines), encoding="utf-8")
    return path


def test_the_sheets_own_division_is_counted_and_not_the_usual_shares(tmp_path: Path) -> None:
    sheet = sheet_of(tmp_path, [("train", "k1")] * 30 + [("dev", "k1")] * 10 + [("test", "k1")] * 60)
    plan = make_plan(load_config("fivedoctors", "gpt", questions=sheet), TODAY)
    calls = {(step.step, step.what): step.calls for step in plan.steps}

    assert plan.splits == {"dev": 10, "test": 60, "train": 30}
    assert calls["evaluate", "retrievals"] == 5 * 60


@pytest.mark.slow
def test_a_plan_says_what_can_only_be_held_and_why(tmp_path: Path) -> None:
    sheet = sheet_of(tmp_path, [("train", "k1")] * 256 + [("dev", "")] + [("test", "k1")] * 199 + [("test", "")] * 50)
    config = load_config("fivedoctors", "gpt", questions=sheet)
    alone = config.model_copy(update={"gateway": config.gateway.model_copy(update={"examiner": None})})

    [few] = make_plan(config, TODAY).promotion.obstacles
    both = make_plan(alone, TODAY).promotion

    assert "199 rows with gold passages" in few.reason
    assert (both.possible, both.obstacles[1:]) == (False, (few,))
    assert both.obstacles[0].reason.startswith("The examiner is the judge, gpt-5.6-sol")


def test_with_labels_enough_and_an_examiner_nothing_stands_against_a_promotion(tmp_path: Path) -> None:
    sheet = sheet_of(tmp_path, [("train", "k1")] * 256 + [("dev", "")] + [("test", "k1")] * 200)
    config = load_config("fivedoctors", "gpt", questions=sheet)
    result = make_plan(config, TODAY).promotion
    own_config = config.model_copy(update={"stand_ins": StandIns(rag=True)})

    assert (result.possible, result.obstacles) == (True, ())
    assert "data.snapshot" in result.unchecked[0] and result.unchecked[0] in " ".join(promotion_lines(result))
    assert make_plan(own_config, TODAY).promotion.unchecked == ()


def test_labels_that_the_knowledge_base_does_not_know_are_told_with_their_rows(tmp_path: Path) -> None:
    sheet = sheet_of(tmp_path, [("train", "k1"), ("train", "k9"), ("test", "k1;k8")])
    base = tmp_path / "kb.jsonl"
    base.write_text('{"id": "k1", "content": "段"}\n', encoding="utf-8")
    without = make_plan(load_config("fivedoctors", "gpt", questions=sheet), date(2026, 7, 10))
    plan = make_plan(load_config("fivedoctors", "gpt", questions=sheet, knowledge_base=base), date(2026, 7, 10))

    assert "Gold passages of 3 rows were not looked up: give --knowledge-base." in without.warnings
    [partly] = [line for line in plan.warnings if "gold" in line.lower()]
    assert partly == "1 rows name unknown gold passages beside known ones: 'q2' ('k8')"
    gold, rows, dev = (refusal.reason for refusal in plan.promotion.refusals)
    assert "'q1' ('k9')" in gold and "2 rows for training" in rows and "no row is for dev" in dev


def test_a_tenant_without_a_knowledge_base_stands_against_a_run_that_searches_with_ours(tmp_path: Path) -> None:
    sheet = sheet_of(tmp_path, [("train", "")] * 256 + [("dev", ""), ("test", "")])
    (tmp_path / "bases").mkdir()
    (tmp_path / "bases" / "chengla.jsonl").write_text('{"id": "k1", "content": "段"}\n', encoding="utf-8")
    own_config = load_config("fivedoctors", "demo", questions=sheet, knowledge_base=tmp_path / "bases")
    other_config = load_config("fivedoctors", "gpt", questions=sheet, knowledge_base=tmp_path / "bases")

    [refusal] = make_plan(own_config, TODAY).promotion.refusals
    assert "holds nothing of fivedoctors" in refusal.reason
    assert make_plan(other_config, TODAY).promotion.refusals == ()


def test_the_plan_says_whether_the_training_fits(questions: Path) -> None:
    plan = make_plan(load_config("fivedoctors", "gpt", questions=questions), TODAY)
    tiny = make_plan(load_config("fivedoctors", "demo", questions=questions), TODAY)

    assert plan.fit[0] == "On 4 x NVIDIA-A100-SXM4-80GB:" and plan.fit[1].startswith("Yes.")
    assert tiny.fit == ()
    config = load_config("fivedoctors", "gpt", questions=questions, training="cpu")
    whole, short = (make_plan(config, TODAY, stages=REWRITER.until(stage)).fit for stage in ("ppo", "sft"))
    assert any(re.fullmatch(r"ppo needs \d+\.\d GB of memory\.", line) for line in whole)
    assert not any("ppo" in line for line in short)
