"""The models that a shadow compares, and the text that it compares by: decided on plain data."""

from typing import Any

import pytest

from serving.rollout.shadow.canary_client import read_rewrite
from serving.rollout.shadow.comparer import MAX_NEED_CHARS, build_need, pair_outcome
from serving.rollout.shadow.metrics import PairFailure
from serving.rollout.shadow.pair_source import compared_versions, tag_route
from serving.rollout.shadow.payload_log import LoggedQuestion, parse_line, sampled

STABLE = {"uri": "s3://q/old", "digest": "1" * 64, "model": "4" * 64}


def rollout(number: int, phase: str = "Analyse", outcome: str = "", **status: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": f"rewriter-{number}"},
        "spec": {"inferenceService": "rewriter", "release": {"model": str(number) * 64}},
        "status": {"phase": phase, "outcome": outcome, "stable": STABLE} | status,
    }


def requested(question: str = "一天吃几次", history: str = "") -> LoggedQuestion:
    values = {"request_id": "r", "version": "v", "outcome": "answered", "tenant": "fivedoctors"}
    return LoggedQuestion.model_validate({**values, "question": question, "history_summary": history})


def test_the_rollout_under_way_says_who_is_compared() -> None:
    present = [rollout(1, "Done", "Promoted"), rollout(2), rollout(3, "Done", "Refused")]

    assert compared_versions(present, "rewriter") == ("2" * 12, "4" * 12)
    assert compared_versions(present, "other") is None
    assert compared_versions([{**rollout(2), "status": {}}], "rewriter") is None, "it has not begun"
    assert compared_versions([*present, {**rollout(4), "status": {}}], "rewriter") == ("2" * 12, "4" * 12), (
        "one waits behind it"
    )


@pytest.mark.parametrize("phase", ["Verify", "Apply", "Promote", "Rollback", "Done"])
def test_without_a_canary_that_is_still_judged_nobody_is(phase: str) -> None:
    assert compared_versions([rollout(2, phase)], "rewriter") is None


def traffic(*routes: dict[str, Any]) -> dict[str, Any]:
    return {"status": {"components": {"predictor": {"traffic": list(routes)}}}}


def test_the_tag_route_is_the_newest_revisions_own() -> None:
    newest = {"latestRevision": True, "percent": 0, "tag": "latest", "url": "http://latest-rewriter.example"}
    before = {"latestRevision": False, "percent": 100, "tag": "prev", "url": "http://prev-rewriter.example"}

    assert tag_route(traffic(before, newest)) == "http://latest-rewriter.example"
    assert tag_route(traffic(before, {"latestRevision": True, "percent": 5})) == ""
    assert tag_route({}) == tag_route(traffic()) == ""


def test_the_need_is_the_question_and_its_history_and_fits() -> None:
    assert build_need(requested(history="用户正在了解\n虾青素")) == "一天吃几次 用户正在了解 虾青素"
    assert build_need(requested()) == "一天吃几次"
    assert len(build_need(requested(history="长" * 9000))) == MAX_NEED_CHARS
    assert len(build_need(requested("问" * 9000))) == MAX_NEED_CHARS


def test_a_hair_is_no_win() -> None:
    assert [pair_outcome(*pair) for pair in ((0.5, 0.4), (0.4, 0.5), (0.505, 0.5), (0.0, 0.0))] == [
        "won", "lost", "tied", "tied",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"{", "canary_malformed"),
        (b'{"predictions": []}', "canary_malformed"),
        (b'{"predictions": [{"rewritten_query": " ", "model_version": "v"}]}', "canary_malformed"),
        (b'{"predictions": [{"rewritten_query": "\\u200b", "model_version": "v"}]}', "canary_malformed"),
        (b'{"predictions": [{"rewritten_query": 7, "model_version": "v"}]}', "canary_malformed"),
        (b'{"predictions": [{"rewritten_query": "x", "model_version": "w"}]}', "other_version"),
    ],
)
def test_an_answer_that_is_none_or_another_models_is_a_failure_with_its_reason(content: bytes, reason: str) -> None:
    with pytest.raises(PairFailure) as failed:
        read_rewrite(content, "v")
    assert failed.value.reason == reason


def test_the_share_is_chosen_independently_of_the_logs_own() -> None:
    """The log has kept those whose digest is small; of these, too, about half must be taken."""
    import hashlib

    ids = [f"request-{number}" for number in range(8000)]
    stored = [item for item in ids if hashlib.sha256(item.encode()).digest()[0] < 64]

    assert 0.4 < sum(sampled(item, 0.5) for item in stored) / len(stored) < 0.6
    assert not any(sampled(item, 0.0) for item in ids)


def test_a_line_that_is_none_is_none() -> None:
    for line in (b"", b"[]", b"7", b'{"request_id": ""}', b'{"question": {}}', b"\xff"):
        assert parse_line(line) is None
