"""The controller's copies: the newest of each object, whether the watch or the answer to a write brought it."""

from typing import Any, cast

import pytest

from qinglan.jobs.api import Api
from serving.rollout.cluster.reading import Object
from serving.rollout.cluster.shelf import Shelf

KIND = "inferenceservices"


@pytest.fixture
def shelf() -> Shelf:
    """Its watches are not started: the tests say what they bring."""
    return Shelf(cast(Api, None), lambda kind, thing, gone: None)


def service(version: int, uid: str = "one", **spec: Any) -> Object:
    return {"metadata": {"name": "rewriter", "uid": uid, "resourceVersion": str(version)}, "spec": spec}


def watched(shelf: Shelf, change: str, thing: Object) -> None:
    shelf._mirrors[KIND].change(change, thing)


def versions(shelf: Shelf) -> list[tuple[str, str]]:
    return [(thing["metadata"]["uid"], thing["metadata"]["resourceVersion"]) for thing in shelf.all(KIND)]


def test_the_answer_to_a_write_is_known_before_the_watch_reports_it(shelf: Shelf) -> None:
    watched(shelf, "ADDED", service(1))

    shelf.put(KIND, service(2))

    assert versions(shelf) == [("one", "2")]


def test_an_answer_that_comes_late_does_not_hide_what_the_watch_has_brought_since(shelf: Shelf) -> None:
    watched(shelf, "ADDED", service(9))
    watched(shelf, "MODIFIED", service(12))

    shelf.put(KIND, service(10))

    assert versions(shelf) == [("one", "12")]


def test_an_answer_about_an_object_that_was_deleted_meanwhile_does_not_bring_it_back(shelf: Shelf) -> None:
    watched(shelf, "ADDED", service(1))
    watched(shelf, "DELETED", service(3))
    shelf.put(KIND, service(2))
    gone = versions(shelf)

    watched(shelf, "ADDED", service(5, uid="two"))
    shelf.put(KIND, service(2))

    assert (gone, versions(shelf)) == ([], [("two", "5")])


def test_an_object_that_was_just_made_is_known_at_once_also_under_the_name_of_a_deleted_one(shelf: Shelf) -> None:
    watched(shelf, "ADDED", service(1))
    watched(shelf, "DELETED", service(2))

    shelf.put(KIND, service(4, uid="two"))

    assert versions(shelf) == [("two", "4")]
