"""The evaluation before a real gateway: the same way for each system, nothing invented where an answer is missing."""

from pathlib import Path

import orjson
import pytest

from components.evaluation.rewriter import stage
from components.evaluation.rewriter.config import EvaluateConfig
from components.evaluation.rewriter.report import judges_line
from components.evaluation.rewriter.results import student_metrics, teacher_metrics
from components.evaluation.rewriter.score_systems import (
    draw_rows,
    fixed_queries,
    score_all,
    served_queries,
    with_history,
)
from components.evaluation.rewriter.student_timing import StudentOutput
from qinglan.errors import DataError, OutageError
from qinglan.rows.rows import Hit, Retrieval, ValidatedRewrite
from tests.components.evaluation.rewriter.sample_evaluation import (
    CONFIG,
    PRODUCTS,
    TENANTS,
    TERMS,
    Evaluated,
    WordRag,
    gateway,
    locked_row,
    locked_rows,
    write_knowledge_base,
)
from tests.models.validated_rows import validated
from tests.servers.echo_servers import Reply, Scripted

pytestmark = pytest.mark.slow


def test_each_systems_query_is_searched_alike_and_scored_against_the_same_need(evaluated: Evaluated) -> None:
    requests = evaluated.rag.requests

    assert {(request["top_k"], request["score_threshold"]) for request in requests} == {(10, 0.0)}
    for product in PRODUCTS:
        needs = {request["need"] for request in requests if request["rewritten_query"] == f"{product} 退换货政策"}
        assert needs == {f"{product}买错了能退不"}
    assert len(requests) == len(
        {(request["need"], request["rewritten_query"], request["tenant_id"]) for request in requests}
    )


def test_gold_tells_the_systems_apart(evaluated: Evaluated) -> None:
    top1 = {name: levels["top1"]["value"] for name, levels in evaluated.value["systems"].items()}

    assert top1["rl"] == 1.0
    assert top1["teacher"] == pytest.approx(0.75)  # it forgets the product in a third of its rows, and is lucky once
    assert top1["sft"] == pytest.approx(top1["teacher"] - 1 / 24)
    assert top1["plain"] < top1["teacher"]
    assert evaluated.value["systems"]["sft"]["empty"]["value"] == pytest.approx(1 / 24)
    assert evaluated.value["systems"]["sft"]["zero_hit"]["value"] == pytest.approx(1 / 24)


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


def test_each_number_can_be_traced_to_a_prediction(evaluated: Evaluated) -> None:
    lines = [orjson.loads(line) for line in evaluated.predictions.read_bytes().splitlines()]
    ranks = [line["systems"]["teacher"]["rank"] for line in lines]

    assert len(lines) == 24
    assert sum(rank == 1 for rank in ranks) / 24 == evaluated.value["systems"]["teacher"]["top1"]["value"]


def test_one_model_as_both_judges_is_no_second_opinion(evaluated: Evaluated) -> None:
    agreement = evaluated.value["agreement"]

    assert -1 <= agreement["kendall"] <= agreement["spearman"] <= 1 and agreement["n"] > 12
    assert "are one model, fivedoctors" in judges_line({**agreement, "same_model": True})


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
