"""Rewrites are remembered for the one version that answers, and for a question in its whole context."""

from typing import Any

import pytest

from qinglan.rag.contract import RagRequest
from serving.rag.rewrite_cache import CONFIRM_SECONDS, SAME_ANSWERS, RewriteCache, RewriteResult

FIRST = RewriteResult("虾青素软胶囊 每日服用频次", "v1")


def request(query: str = "一天吃几次", **fields: Any) -> RagRequest:
    return RagRequest.model_validate({"query": query, "tenant_id": "fivedoctors", **fields})


def filled(most: int = 10) -> RewriteCache:
    cache = RewriteCache(most)
    cache.add(request(), FIRST)
    return cache


def test_the_same_question_is_answered_from_memory_and_says_so() -> None:
    assert filled().current(request(top_k=3)) == FIRST._replace(cached=True)


@pytest.mark.parametrize(
    "other",
    [
        {"query": "一天吃几次？"}, {"tenant_id": "chengla"}, {"user_profile": "30岁"},
        {"history_summary": "用户在看虾青素软胶囊"},
    ],
)  # fmt: skip
def test_another_question_tenant_profile_or_history_is_another_entry(other: dict[str, str]) -> None:
    assert filled().known(request(**other)) is None


def test_fields_cannot_be_shifted_into_each_other() -> None:
    cache = RewriteCache(10)
    cache.add(request("一天", user_profile="吃几次"), FIRST)

    assert cache.known(request("一天吃", user_profile="几次")) is None


def test_a_size_of_none_remembers_nothing() -> None:
    assert (filled(0).open, filled(0).known(request())) == (False, None)


def test_what_the_guard_took_back_is_not_remembered() -> None:
    cache = RewriteCache(10)
    cache.add(request(), RewriteResult("一天吃几次", "v1", guarded=True))

    assert cache.known(request()) is None


def test_a_new_version_never_answers_from_the_memory_of_the_old_one() -> None:
    cache = filled()
    cache.add(request("几点吃"), RewriteResult("服用时间", "v2"))

    assert not cache.open
    for _ in range(SAME_ANSWERS - 1):
        assert cache.known(request()) is None
        cache.add(request("几点吃"), RewriteResult("服用时间", "v2"))

    assert cache.open
    assert cache.known(request()) is None, "what v1 wrote"
    rewrite = cache.known(request("几点吃"))
    assert rewrite and rewrite.version == "v2"


def test_after_a_while_without_an_answer_one_question_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a service whose questions are all known would never hear of a new version."""
    now = 1000.0
    monkeypatch.setattr("serving.rag.rewrite_cache.time.monotonic", lambda: now)
    cache = filled()
    now += CONFIRM_SECONDS - 1
    assert cache.current(request())
    now += 1

    assert [cache.current(request()) is None for _ in range(3)] == [True, False, False]
