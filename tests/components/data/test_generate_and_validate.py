"""generate and validate before a real gateway: a failure is never a rewrite, an outage never a rejection."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from components.data.generate.config import GenerateConfig
from components.data.generate.stage import GenerateCounts, generate
from components.data.validate.config import ValidateConfig
from components.data.validate.stage import check_teacher, rejection_reason, validate
from qinglan.errors import BudgetError, DataError, GateHeldError, OutageError
from qinglan.files.files import dump_line, read_jsonl, sha256_file
from qinglan.rag.contract import RagData
from qinglan.rag.retrieval import RetrievalConfig
from qinglan.rows.rows import Hit, QuarantinedRow, Retrieval, Rewrite, Split, ValidatedRewrite, to_retrieval
from qinglan.rows.splits import SplitConfig
from tests.servers.echo_servers import GatewayProcess, Reply, Scripted, completion, gateway_config, running
from tests.servers.scripted_rag import Rag

pytestmark = pytest.mark.slow

SETTINGS = GenerateConfig(tenant_id="fivedoctors")


@contextmanager
def gateway(folder: Path, teacher: Scripted, rag: Any = None, **changes: Any) -> Iterator[str]:
    """A gateway's URL before a scripted teacher and RAG; keeps its journal in `folder`."""
    with running(teacher) as teacher_url, running(rag or Scripted(Reply(503, b""))) as rag_url:
        process = GatewayProcess(gateway_config(teacher_url, rag_url, **changes), folder)
        try:
            yield process.url()
        finally:
            process.stop()


def write_questions(folder: Path, *questions: str, **fields: str) -> Path:
    path = folder / "questions.jsonl"
    rows = [{"id": f"r{n}", "question": text, **fields} for n, text in enumerate(questions)]
    path.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows), encoding="utf-8")
    return path


def run_generate(folder: Path, url: str, questions: Path, **settings: Any) -> GenerateCounts:
    config = SETTINGS.model_copy(update=settings)
    return generate(questions, folder / "rewrites", folder / "table", folder / "bad", config, url)


def quarantined(folder: Path) -> list[QuarantinedRow]:
    return [row for _, row in read_jsonl(folder / "bad", QuarantinedRow)]


def test_a_rewrite_carries_its_question_its_teacher_and_its_paid_call(tmp_path: Path) -> None:
    questions = write_questions(tmp_path, "那它一天吃几次", conversation_id="c1", gold="k1")
    with gateway(tmp_path, Scripted(Reply(200, completion("虾青素\n每日服用频次")))) as url:
        counts = run_generate(tmp_path, url, questions)

    [(_, row)] = read_jsonl(tmp_path / "rewrites", Rewrite)
    assert (row.rewritten_query, row.teacher, row.conversation_id, row.gold) == (
        "虾青素 每日服用频次", "echo", "c1", ("k1",)
    )  # fmt: skip
    assert len(row.call) == 64
    assert counts == GenerateCounts(rows=1, rewritten=1, quarantined=0, lost=0, journal_answers=0)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (completion("", refusal="我不能写"), "refused"),
        (completion("半句", finish="length"), "truncated"),
        (completion("  "), "empty"),
        (completion("\u200b\ufeff"), "empty"),
        (completion("长" * 1001), "too long"),
        (completion("改写", finish="content_filter"), "refused"),
        (b'{"choices": null}', "no choices"),
        (b"<html>busy</html>", "unreadable"),
    ],
)
def test_an_unusable_answer_quarantines_the_row_with_what_came(tmp_path: Path, answer: bytes, reason: str) -> None:
    questions = write_questions(tmp_path, "那它一天吃几次")
    with gateway(tmp_path, Scripted(Reply(200, answer))) as url, pytest.raises(OutageError, match=rf"\({reason}\)"):
        run_generate(tmp_path, url, questions)

    [row] = quarantined(tmp_path)
    assert (row.id, row.reason, row.question) == ("r0", reason, "那它一天吃几次")
    assert row.raw
    assert (tmp_path / "rewrites").read_bytes() == b""


def test_a_run_of_few_rows_whose_teacher_is_away_does_not_end_well(tmp_path: Path) -> None:
    """Three failed calls are no outage for the gateway; three rows without one rewrite are no result either."""
    questions = write_questions(tmp_path, *(f"问题{n}" for n in range(3)))
    with (
        gateway(tmp_path, Scripted(Reply(503, b"away")), limits={"attempts": 1}) as url,
        pytest.raises(OutageError, match=r"none of 3 questions \(status 503\).*To do: run again; if it stays"),
    ):
        run_generate(tmp_path, url, questions)
    assert len(quarantined(tmp_path)) == 3

    with gateway(tmp_path, Scripted(Reply(200, completion("改写")))) as url:
        assert run_generate(tmp_path, url, questions).rewritten == 3


def test_a_sheet_without_one_question_is_an_error(tmp_path: Path) -> None:
    questions = write_questions(tmp_path, "\u200b", "")
    with gateway(tmp_path, Scripted()) as url, pytest.raises(DataError, match=r"None of 2 rows.*\(empty\).*line 1"):
        run_generate(tmp_path, url, questions)


@pytest.mark.parametrize(
    ("cut", "rows", "limit"), [(0, 10, 0.0), (1, 10, 0.0), (1, 10, 0.1), (2, 10, 0.1), (9, 10, 1.0)]
)
def test_a_run_that_loses_too_many_rows_stops_with_the_setting_that_helps(
    tmp_path: Path, cut: int, rows: int, limit: float
) -> None:
    questions = write_questions(tmp_path, *(f"问题{n}" for n in range(rows)))
    half, whole = completion("半句", finish="length"), completion("改写")
    teacher = Scripted(*[Reply(200, half)] * cut, Reply(200, whole))
    with gateway(tmp_path, teacher) as url:
        if cut / rows > limit:
            with pytest.raises(OutageError, match=r"gateway\.teacher\.max_output_tokens[^$]*generate\.max_lost"):
                run_generate(tmp_path, url, questions, max_lost=limit)
        else:
            counts = run_generate(tmp_path, url, questions, max_lost=limit)
            assert (counts.rewritten, counts.lost) == (rows - cut, cut)
            assert counts.causes == (f"{cut} truncated" if cut else "")

    with gateway(tmp_path, teacher, model={"max_output_tokens": 200}) as url:
        again = run_generate(tmp_path, url, questions, max_lost=limit)
    assert (again.rewritten, again.lost, again.causes, again.journal_answers) == (rows, 0, "", rows - cut)
    assert len(teacher.requests) == rows + cut, "only the lost rows are asked for again"


def test_cut_rows_are_not_paid_again_at_the_same_limit_and_the_others_are(tmp_path: Path) -> None:
    questions = write_questions(tmp_path, *(f"问题{n}" for n in range(6)))
    half, none, whole = completion("半句", finish="length"), completion(" "), completion("改写")
    teacher = Scripted(*(Reply(200, answer) for answer in (half, half, half, none, whole)))
    causes = []
    for _ in range(2):
        with gateway(tmp_path, teacher, limits={"concurrency": 1}) as url:
            causes.append(run_generate(tmp_path, url, questions, max_lost=1.0).causes)

    assert causes == ["3 truncated + 1 empty", "3 truncated"]
    assert len(teacher.requests) == 6 + 1, "the empty answer alone is asked for again"


def test_a_teacher_that_declines_in_words_loses_its_rows_and_one_text_for_all_is_counted(tmp_path: Path) -> None:
    questions = write_questions(tmp_path, *(f"question {n}" for n in range(10)))
    sorry, nope = completion("I'm sorry, I can't help with that."), completion("Please contact  support")
    teacher = Scripted(*[Reply(200, sorry)] * 3, Reply(200, nope))
    with gateway(tmp_path, teacher) as url:
        counts = run_generate(tmp_path, url, questions, max_lost=1.0)

    assert (counts.rewritten, counts.causes, counts.same_rewrite) == (7, "3 refused", 7)


def test_equal_questions_of_one_sheet_were_not_paid_for_earlier(tmp_path: Path) -> None:
    questions = write_questions(tmp_path, *(f"问题{n % 5}" for n in range(40)))
    with gateway(tmp_path, Scripted(Reply(200, completion("改写")))) as url:
        first, again = (run_generate(tmp_path, url, questions) for _ in range(2))

    assert (first.rewritten, first.journal_answers, again.journal_answers) == (40, 0, 40)


def test_the_budget_ends_the_stage_before_it_is_passed_and_leaves_no_half_file(tmp_path: Path) -> None:
    questions = write_questions(tmp_path, *(f"问题{n}" for n in range(50)))
    teacher = Scripted(Reply(200, completion("改写")))
    with gateway(tmp_path, teacher, budget=0.004) as url, pytest.raises(BudgetError, match=r"gateway\.budget"):
        run_generate(tmp_path, url, questions)

    assert not (tmp_path / "rewrites").exists()
    assert 0 < len(teacher.requests) < 50

    with gateway(tmp_path, teacher, budget=1.0) as url:
        counts = run_generate(tmp_path, url, questions)
    assert counts.rewritten == 50
    assert counts.journal_answers > 0
    assert len(teacher.requests) == 50, "what was paid for is not asked again"


def test_a_teacher_whose_host_is_not_found_quarantines_no_row_and_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_KEY", "k")
    monkeypatch.setenv("QINGLAN_ALLOWED_HOSTS", "teacher.invalid")
    unreachable = {"base_url": "https://teacher.invalid/v1", "api_key_env": "SOME_KEY"}
    questions = write_questions(tmp_path, *(f"问题{n}" for n in range(20)))
    with (
        gateway(tmp_path, Scripted(), model=unreachable) as url,
        pytest.raises(OutageError, match=r"at https://teacher\.invalid/v1: ConnectError"),
    ):
        run_generate(tmp_path, url, questions)
    assert not (tmp_path / "bad").exists()

    with gateway(tmp_path, Scripted(Reply(200, completion("改写")))) as url:
        assert run_generate(tmp_path, url, questions) == GenerateCounts(20, 20, 0, 0, 0, "", 20)


def hit(passage: str, score: float) -> dict[str, Any]:
    return {"id": passage, "content": "内容", "reranker_score": score, "query_score": score, "metadata": {}}


def by_query(request: dict[str, Any]) -> list[dict[str, Any]]:
    return [hit("k1", 0.9), hit("k2", 0.4)] if "频次" in request["rewritten_query"] else [hit("k2", 0.2)]


@pytest.fixture
def knowledge_base(tmp_path: Path) -> Path:
    path = tmp_path / "kb.jsonl"
    path.write_text('{"id": "k1", "content": "内容"}\n', encoding="utf-8")
    return path


def write_rewrites(folder: Path, **changes: Any) -> Path:
    values: dict[str, Any] = {
        "id": "r0", "tenant_id": "fivedoctors", "conversation_id": "c0", "question": "那它一天吃几次",
        "rewritten_query": "虾青素 每日服用频次", "teacher": "echo", "call": "x", "gold": ("k1",),
    }  # fmt: skip
    path = folder / "rewrites"
    path.write_bytes(dump_line(Rewrite(**{**values, **changes})))
    return path


def many_rewrites(folder: Path, count: int, marked: Split | None = None, gold: tuple[str, ...] = ("k1",)) -> Path:
    """Two turns of each conversation, of which one has the mark of a split."""
    row = Rewrite(
        id="", tenant_id="t", conversation_id="", question="问题", rewritten_query="改写", teacher="m", call="x",
        gold=gold, need="需求",
    )  # fmt: skip
    changes = [
        {"id": f"r{n}", "conversation_id": f"c{n // 2}", "split": marked if n % 2 else None} for n in range(count)
    ]
    path = folder / "rewrites"
    path.write_bytes(b"".join(dump_line(row.model_copy(update=change)) for change in changes))
    return path


def run_validate(folder: Path, url: str, rewrites: Path, knowledge_base: Path, **settings: Any) -> Any:
    outputs = folder / "validated", folder / "table", folder / "bad"
    return validate(rewrites, knowledge_base, *outputs, ValidateConfig(**settings), url)


def test_both_queries_are_retrieved_and_scored_against_the_same_need(tmp_path: Path, knowledge_base: Path) -> None:
    rag = Rag(by_query, sha256_file(knowledge_base))
    with gateway(tmp_path, Scripted(Reply(200, completion("虾青素一天吃几次"))), rag) as url:
        counts = run_validate(tmp_path, url, write_rewrites(tmp_path), knowledge_base).counts

    [(_, row)] = read_jsonl(tmp_path / "validated", ValidatedRewrite)
    assert sorted((request["rewritten_query"], request["need"]) for request in rag.requests) == [
        ("虾青素 每日服用频次", "虾青素一天吃几次"), ("那它一天吃几次", "虾青素一天吃几次")
    ]  # fmt: skip
    assert (row.plain.gold_rank, row.rewritten.gold_rank, row.accepted) == (None, 1, True)
    assert {(request["top_k"], request["score_threshold"]) for request in rag.requests} == {(10, 0.0)}
    assert row.retrieved_with == ValidateConfig().retrieval
    assert (row.need, row.need_source) == ("虾青素一天吃几次", "judge")
    assert (counts.plain_top1, counts.rewritten_top1, counts.accepted) == (0, 1, 1)
    # the first passage that production shows: .2 by the question is below the cut, so nothing is shown
    assert (counts.plain_score, counts.mean_score) == (0.0, 0.9)


def test_the_sheets_need_is_used_and_nobody_is_paid_for_one(tmp_path: Path, knowledge_base: Path) -> None:
    judge = Scripted(Reply(500, b""))
    with gateway(tmp_path, judge, Rag(by_query, "")) as url:
        run_validate(tmp_path, url, write_rewrites(tmp_path, need="一天服用几次虾青素"), knowledge_base)

    [(_, row)] = read_jsonl(tmp_path / "validated", ValidatedRewrite)
    assert (row.need, row.need_source, judge.requests) == ("一天服用几次虾青素", "sheet", [])


def test_a_rag_that_cannot_answer_is_an_outage_and_not_a_rejection(tmp_path: Path, knowledge_base: Path) -> None:
    rewrites = write_rewrites(tmp_path, need="虾青素一天吃几次")

    with gateway(tmp_path, Scripted(), Scripted(Reply(503, b"away"))) as url, pytest.raises(OutageError):
        run_validate(tmp_path, url, rewrites, knowledge_base)
    assert not (tmp_path / "validated").exists()


def test_another_knowledge_base_than_the_runs_is_refused(tmp_path: Path, knowledge_base: Path) -> None:
    rewrites = write_rewrites(tmp_path, need="虾青素一天吃几次")

    with (
        gateway(tmp_path, Scripted(), Rag(by_query, "e" * 64)) as url,
        pytest.raises(DataError, match="not this run's"),
    ):
        run_validate(tmp_path, url, rewrites, knowledge_base)


@pytest.mark.parametrize(("marked", "left"), [(None, 7), ("train", 8), ("test", 0)])
def test_conversations_that_convert_will_lock_away_are_left_out_too(
    tmp_path: Path, knowledge_base: Path, marked: Split | None, left: int
) -> None:
    """Without marks the settings draw the test; one turn's mark is that of its whole conversation."""
    # One of the eight is drawn for test.
    splits = SplitConfig(train=0.5, dev=0.2, seed=3)
    with gateway(tmp_path, Scripted(), Rag(by_query, "")) as url:
        rewrites = many_rewrites(tmp_path, 16, marked)
        counts = run_validate(tmp_path, url, rewrites, knowledge_base, splits=splits).counts

    assert (counts.validated, counts.labelled) == (16, 2 * left)


def worse_rewrites(request: dict[str, Any]) -> list[dict[str, Any]]:
    return [hit("k1", 0.9) if "问题" in request["rewritten_query"] else hit("k2", 0.1)]


@pytest.mark.parametrize(
    ("search_answer", "gold", "allowed", "stops"),
    [
        (worse_rewrites, ("k1",), False, "gold passage first: 100% by the plain question, 0% by the teacher"),
        (worse_rewrites, (), False, "score of the first passage: 0.9 by the plain question, 0 by the teacher"),
        (worse_rewrites, ("k1",), True, ""),
        (lambda request: [hit("k1", 0.9)], ("k1",), False, ""),
        (lambda request: [], ("k1",), False, ""),
    ],
)
def test_a_teacher_that_is_worse_than_no_rewrite_stops_the_run_before_training(
    tmp_path: Path, knowledge_base: Path, search_answer: Any, gold: tuple[str, ...], allowed: bool, stops: str
) -> None:
    settings = ValidateConfig(allow_worse_teacher=allowed)
    with gateway(tmp_path, Scripted(), Rag(search_answer, "")) as url:
        result = run_validate(tmp_path, url, many_rewrites(tmp_path, 40, gold=gold), knowledge_base)

    if stops:
        with pytest.raises(GateHeldError, match=stops) as held:
            check_teacher(result.gain, settings)
        assert "validate.allow_worse_teacher: true" in str(held.value)
    else:
        check_teacher(result.gain, settings)


@pytest.mark.parametrize(
    ("scores", "threshold", "reason"),
    [
        ([], 0.0, "nothing found"),
        ([0.59], 0.6, "top-1 score below the threshold"),
        ([0.6], 0.6, ""),
        ([0.5, 0.9], 0.6, "top-1 score below the threshold"),
        ([0.0], 0.0, ""),
    ],
)
def test_a_verdict_looks_at_the_first_passage_alone(scores: list[float], threshold: float, reason: str) -> None:
    hits = tuple(Hit(id=f"k{n}", reranker_score=score) for n, score in enumerate(scores))
    result = Retrieval(query="q", hits=hits, top1_score=scores[0] if scores else 0.0, count=len(scores))

    assert rejection_reason(result, threshold) == reason


def rag_data(recall: list[dict[str, Any]]) -> RagData:
    return RagData.model_validate(
        {"rewritten_query": "q", "recall": recall, "scored_against": "need", "rewriter": "request", "snapshot": ""}
    )


@pytest.mark.parametrize(("gold", "rank"), [((), None), (("k3",), None), (("k2",), 2), (("k2", "k1"), 1)])
def test_the_rank_is_of_the_first_gold_passage(gold: tuple[str, ...], rank: int | None) -> None:
    recall = [hit("k1", 0.9), hit("k2", 0.4)]
    data = rag_data(recall)

    assert to_retrieval("q", data, gold, RetrievalConfig(score_threshold=0.0)).gold_rank == rank


def test_hits_that_production_cuts_off_are_kept_for_the_reward_alone() -> None:
    recall = [hit("k1", 0.9) | {"query_score": 0.4}, hit("k2", 0.7)]
    data = rag_data(recall)

    result = to_retrieval("q", data, ("k2",), RetrievalConfig(score_threshold=0.5))

    assert [(passage.id, passage.query_score) for passage in result.hits] == [("k1", 0.4), ("k2", 0.7)]
    assert (result.top1_score, result.count, result.gold_rank) == (0.7, 1, 1)
    nothing = to_retrieval("q", data, ("k2",), RetrievalConfig(score_threshold=0.8))
    assert rejection_reason(nothing, 0.0) == "nothing found"
