"""The evaluation before a real gateway: the same way for each system, nothing invented where an answer is missing."""

import math
from collections import Counter
from pathlib import Path

import orjson
import pytest

from components.evaluation.rewriter import stage
from components.evaluation.rewriter.config import EvaluateConfig
from components.evaluation.rewriter.measures import METRICS
from components.evaluation.rewriter.report import to_markdown
from components.evaluation.rewriter.results import student_metrics, teacher_metrics
from components.evaluation.rewriter.score_systems import (
    ScoredRows,
    draw_rows,
    fixed_queries,
    read_score,
    score_all,
    served_queries,
    with_history,
)
from components.evaluation.rewriter.student_timing import StudentOutput
from qinglan.errors import DataError, OutageError, RowError
from qinglan.evaluation.gates.evaluation_file import read_evaluation
from qinglan.evaluation.gates.rewriter_gate import decide
from qinglan.rows.rows import Hit, Retrieval, ValidatedRewrite
from tests.components.evaluation.rewriter.sample_evaluation import (
    CONFIG,
    ORIGINS,
    PRODUCTS,
    TENANTS,
    TERMS,
    Evaluated,
    WordRag,
    gateway,
    locked_row,
    locked_rows,
    write_knowledge_base,
    writing,
)
from tests.models.validated_rows import validated
from tests.servers.echo_servers import Reply, Scripted

pytestmark = pytest.mark.slow


def test_each_systems_query_is_searched_alike_and_scored_against_the_same_need(evaluated: Evaluated) -> None:
    asked = evaluated.rag.requests

    assert {(one["top_k"], one["score_threshold"]) for one in asked} == {(10, 0.0)}
    for product in PRODUCTS:
        needs = {one["need"] for one in asked if one["rewritten_query"] == f"{product} 退换货政策"}
        assert needs == {f"{product}买错了能退不"}
    assert len(asked) == len({(one["need"], one["rewritten_query"], one["tenant_id"]) for one in asked})


def test_gold_tells_the_systems_apart(evaluated: Evaluated) -> None:
    top1 = {name: found["top1"]["value"] for name, found in evaluated.value["systems"].items()}

    assert top1["rl"] == 1.0
    assert top1["teacher"] == pytest.approx(0.75)  # it forgets the product in a third of its rows, and is lucky once
    assert top1["sft"] == pytest.approx(top1["teacher"] - 1 / 24)
    assert top1["plain"] < top1["teacher"]
    assert evaluated.value["systems"]["sft"]["empty"]["value"] == pytest.approx(1 / 24)
    assert evaluated.value["systems"]["sft"]["zero_hit"]["value"] == pytest.approx(1 / 24)


def test_pairs_have_differences_by_metric_and_by_tenant(evaluated: Evaluated) -> None:
    versus = evaluated.value["paired"]["rl_vs_teacher"]

    assert versus["metric"] == "top1"
    assert (versus["difference"], versus["wins"], versus["losses"]) == (pytest.approx(0.25), 6, 0)
    assert (versus["n"], versus["conversations"]) == (24, 8)
    assert set(versus["tenants"]) == set(TENANTS)
    assert versus["tenants"]["chengla"]["n"] == 12
    assert versus["tenants"]["chengla"]["p_holm"] >= versus["tenants"]["chengla"]["p"]
    assert set(evaluated.value["paired"]) == {
        "rl_vs_teacher", "sft_vs_teacher", "rl_vs_sft", "rl_vs_plain", "sft_vs_plain", "teacher_vs_plain",
        "history_vs_teacher",
    }  # fmt: skip


def test_too_few_queries_hold_whatever_they_show(evaluated: Evaluated) -> None:
    verdict = evaluated.value["verdict"]

    assert (verdict["promote"], verdict["word"]) == (False, "hold")
    assert "Too few: 24 queries with gold passages were compared, and 200 are wanted." in verdict["reasons"]


def test_the_judges_are_named_and_their_agreement_is_there(evaluated: Evaluated) -> None:
    agreement = evaluated.value["agreement"]

    assert (agreement["judge"], agreement["examiner"]) == ("fivedoctors", "fivedoctors-examiner")
    assert not agreement["same_model"]
    assert agreement["n"] > 12
    assert -1 <= agreement["kendall"] <= agreement["spearman"] <= 1
    assert agreement["mean_difference"] > 0


def test_configured_numbers_are_marked_and_unmeasured_ones_are_empty(evaluated: Evaluated) -> None:
    teacher, rl = (evaluated.value["systems"][name] for name in ("teacher", "rl"))

    assert (teacher["latency_p50"]["value"], teacher["latency_p50"]["how"]) == (2000.0, "assumed")
    assert teacher["cost"]["value"] is None, "no teacher was paid in this journal"
    assert rl["latency_p50"]["value"] == pytest.approx(20.0)
    assert rl["cost"]["value"] == pytest.approx(2.0 / 24 * 1000 * 2.0 / 3600)
    assert "The value of cost of teacher could not be measured." in evaluated.value["verdict"]["reasons"]


@pytest.mark.parametrize(
    ("seconds", "stand_in", "latency", "how"),
    [
        ([0.5, 1.0, 3.0], False, 1000.0, "the journal's live calls"),
        ([], False, 2000.0, "assumed"),  # all answers were prepaid
        ([0.01] * 3, True, 2000.0, "assumed"),
    ],
)
def test_the_teachers_latency_is_that_of_its_live_calls(
    seconds: list[float], stand_in: bool, latency: float, how: str
) -> None:
    report = {"by_step": [], "models": {"teacher": {"typical_seconds": 2.0}}}

    teacher = teacher_metrics(report, seconds, EvaluateConfig(stand_in_teacher=stand_in, draws=1_000))
    assert (teacher["latency_p50"]["value"], teacher["latency_p50"]["how"]) == (latency, how)


@pytest.mark.parametrize("cards", [1, 2, 8])
def test_a_student_costs_the_hours_of_all_cards_that_serve_it(cards: int) -> None:
    student = StudentOutput(["改写"] * 100, 0, 36.0, [0.1], 0, "card")
    config = EvaluateConfig(gpu_hour_price=2.0, serving_gpus=cards, draws=1_000)

    assert student_metrics(student, config)["cost"]["value"] == pytest.approx(0.2 * cards)


def test_slices_are_counted_by_system(evaluated: Evaluated) -> None:
    gap = evaluated.value["slices"]["gap"]

    assert gap["rows"] == 8
    assert gap["systems"]["rl"]["value"] == 1.0
    assert gap["systems"]["teacher"]["value"] == 0.25


def test_each_number_can_be_traced_to_a_prediction(evaluated: Evaluated) -> None:
    lines = [orjson.loads(line) for line in evaluated.predictions.read_bytes().splitlines()]
    ranks = [line["systems"]["teacher"]["rank"] for line in lines]

    assert len(lines) == 24
    assert sum(rank == 1 for rank in ranks) / 24 == evaluated.value["systems"]["teacher"]["top1"]["value"]


def test_the_markdown_shows_expected_beside_measured(evaluated: Evaluated) -> None:
    text = to_markdown(evaluated.value)

    assert text.startswith("**Hold: RL stays where it is.**")
    assert "| gold passage first | 85.0% | 75.0% | 78.0% | 70.8% | 88.0% | 100.0% |" in text
    assert "2,000 ms (assumed)" in text
    assert "Examiner fivedoctors-examiner and training judge fivedoctors on" in text
    assert "nearly from a similarity of 0.8 on: sft (40 rows): 0 the same" in text
    assert "Nobody compared the test" in to_markdown({**evaluated.value, "leaks": None})


def test_the_report_says_that_both_judges_are_one_model(evaluated: Evaluated) -> None:
    agreement = {**evaluated.value["agreement"], "same_model": True}

    assert "are one model, fivedoctors" in to_markdown({**evaluated.value, "agreement": agreement})


@pytest.mark.parametrize("text", ['{"评分理由": "好"}', '{"综合得分": 0}', '{"综合得分": "5"}', '{"综合得分": true}'])
def test_a_judgement_without_a_score_in_range_is_no_score(text: str) -> None:
    with pytest.raises(RowError, match="综合得分"):
        read_score(text)


def test_a_sample_of_rows_is_of_whole_conversations_and_grows_with_what_is_wanted() -> None:
    rows = locked_rows("s", TENANTS)
    few, more = draw_rows(rows, 4, seed=1), draw_rows(rows, 10, seed=1)

    assert few == more[: len(few)]
    assert len(few) == 6, "two whole conversations of three turns"
    assert draw_rows(rows, 4, seed=2) != few


def test_a_long_history_is_cut_to_what_a_query_may_hold() -> None:
    row = locked_row("s", "fivedoctors", PRODUCTS[0], 1).model_copy(update={"history_summary": "前" * 5_000 + "后"})

    query = with_history(row)
    assert len(query) == 4_000
    assert query.startswith(list(TERMS.values())[1]) and query.endswith("后")


def test_a_rag_that_is_away_is_an_outage_and_leaves_no_predictions(tmp_path: Path) -> None:
    knowledge_base = write_knowledge_base(tmp_path / "kb.jsonl")
    rows = locked_rows("s")
    with (
        gateway(tmp_path, knowledge_base, Scripted(Reply(503, b"away"))) as url,
        pytest.raises(OutageError),
    ):
        score_all(rows, fixed_queries(rows), {}, tmp_path / "predictions.jsonl", CONFIG, url)
    assert not (tmp_path / "predictions.jsonl").exists()


def test_another_knowledge_base_than_the_tests_is_refused(tmp_path: Path) -> None:
    knowledge_base = write_knowledge_base(tmp_path / "kb.jsonl")
    rows = locked_rows("e" * 64)
    with (
        gateway(tmp_path, knowledge_base, WordRag(knowledge_base)) as url,
        pytest.raises(DataError, match="serve the run's knowledge base"),
    ):
        score_all(rows, fixed_queries(rows), {}, tmp_path / "predictions.jsonl", CONFIG, url)


def as_measured(value: float | None) -> float:
    return math.nan if value is None else value


def test_rows_without_gold_are_judged_and_the_verdict_holds(evaluated: Evaluated) -> None:
    lines = [orjson.loads(line) for line in evaluated.predictions.read_bytes().splitlines()]
    rows = [row.model_copy(update={"gold": ()}) for row in locked_rows("s", TENANTS)]
    unknown = {"top1": math.nan, "ndcg": math.nan, "recall": math.nan}
    values = [
        {
            name: {metric: as_measured(one[metric]) for metric in METRICS} | unknown
            for name, one in line["systems"].items()
        }
        for line in lines
    ]
    asking = ScoredRows(values, [{}] * len(rows), Counter(), [], {})
    value = stage.build_evaluation(
        rows, [()] * 24, {}, {"sft": writing(["x"] * 24), "rl": writing(["x"] * 24)}, asking, ORIGINS, CONFIG
    )

    assert value["counts"]["labelled"] == 0
    assert value["systems"]["rl"]["judged_top1"]["how"] == "judged"
    assert value["paired"]["rl_vs_plain"]["judged_top1"]["difference"] > 0
    assert value["verdict"]["word"] == "hold"
    assert any("24 rows have no gold passage" in note for note in value["notes"])


def test_a_written_evaluation_is_decided_again_and_a_broken_one_is_an_error(
    evaluated: Evaluated, tmp_path: Path
) -> None:
    path = tmp_path / "evaluation.json"
    path.write_bytes(orjson.dumps(evaluated.value))
    assert decide(read_evaluation(path), CONFIG.gate)._asdict() == evaluated.value["verdict"]

    path.write_bytes(b"{")
    with pytest.raises(DataError, match="evaluate stage writes it"):
        read_evaluation(path)


def test_slices_are_read_with_what_holds_for_each_question(tmp_path: Path) -> None:
    path = tmp_path / "slices.jsonl"
    path.write_bytes(
        b'{"id":"1","gap":true,"self_contained":false}\n{"id":"2","gap":false,"self_contained":false,"x":"y"}\n'
    )

    assert stage.read_slices(path) == {"1": ["gap"], "2": ["documented"]}
    path.write_bytes(b'{"gap":true}')
    with pytest.raises(DataError, match="id"):
        stage.read_slices(path)


def test_a_question_that_finds_its_answer_as_it_was_asked_is_searched_as_production_would() -> None:
    def scored(score: float | None) -> ValidatedRewrite:
        hits = (Hit(id="k1", reranker_score=0.9, query_score=score),)
        return validated(plain=Retrieval(query="一天吃几次", hits=hits, top1_score=0.9, count=1))

    empty = validated(plain=Retrieval(query="一天吃几次", hits=(), top1_score=0, count=0))
    rows = [scored(0.95), scored(0.9), scored(0.89), scored(None), empty]

    assert served_queries(rows, list("abcde"), 0.9) == ["一天吃几次", "一天吃几次", "c", "d", "e"]
    assert served_queries(rows, list("abcde"), 0) == list("abcde")
