"""The controller's copies: the newest of each object, whether the watch or the answer to a write brought it."""

from typing import Any, cast

import pytest

from qinglan.kubernetes.client import Api
from serving.rollout.cluster.inference_service import Object
from serving.rollout.cluster.object_cache import ObjectCache

KIND = "inferenceservices"


@pytest.fixture
def cache() -> ObjectCache:
    """Its watches are not started: the tests say what they bring."""
    return ObjectCache(cast(Api, None), lambda kind, thing, gone: None)


def service(version: int, uid: str = "one", **spec: Any) -> Object:
    return {"metadata": {"name": "rewriter", "uid": uid, "resourceVersion": str(version)}, "spec": spec}


def watched(cache: ObjectCache, change: str, thing: Object) -> None:
    cache._informers[KIND].handler(change, thing)


def versions(cache: ObjectCache) -> list[tuple[str, str]]:
    return [(thing["metadata"]["uid"], thing["metadata"]["resourceVersion"]) for thing in cache.all(KIND)]


def test_the_answer_to_a_write_is_known_before_the_watch_reports_it(cache: ObjectCache) -> None:
    watched(cache, "ADDED", service(1))

    cache.put(KIND, service(2))

    assert versions(cache) == [("one", "2")]


def test_an_answer_that_comes_late_does_not_hide_what_the_watch_has_brought_since(cache: ObjectCache) -> None:
    watched(cache, "ADDED", service(9))
    watched(cache, "MODIFIED", service(12))

    cache.put(KIND, service(10))

    assert versions(cache) == [("one", "12")]


def test_an_answer_about_an_object_that_was_deleted_meanwhile_does_not_bring_it_back(cache: ObjectCache) -> None:
    watched(cache, "ADDED", service(1))
    watched(cache, "DELETED", service(3))
    cache.put(KIND, service(2))
    gone = versions(cache)

    watched(cache, "ADDED", service(5, uid="two"))
    cache.put(KIND, service(2))

    assert (gone, versions(cache)) == ([], [("two", "5")])


def test_an_object_made_under_the_name_of_a_deleted_one_is_known_at_once(
    cache: ObjectCache,
) -> None:
    watched(cache, "ADDED", service(1))
    watched(cache, "DELETED", service(2))

    cache.put(KIND, service(4, uid="two"))

    assert versions(cache) == [("two", "4")]
