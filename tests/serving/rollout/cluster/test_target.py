"""The InferenceService that a rollout reads, where the cache is late."""

from collections.abc import Sequence
from typing import Any, cast

import pytest

from qinglan.kubernetes.client import Api
from serving.rollout.cluster.inference_service import Object, ServiceObjects
from serving.rollout.cluster.object_cache import SERVICE_LABEL, ObjectCache
from serving.rollout.cluster.target import ClusterTarget
from tests.serving.rollout.cluster.test_snapshot import NEW, OLD, knative

FIELDS = "latestCreatedRevision", "latestReadyRevision", "latestRolledoutRevision"
ROLLOUT = {"spec": {"inferenceService": "rewriter"}}


class Server:
    """The API server's revisions, and how often it was asked for them."""

    def __init__(self, revisions: Sequence[Object]) -> None:
        self.revisions, self.requests = revisions, 0

    def all(self, kind: str, query: Any) -> dict[str, Any]:
        assert (kind, query) == ("revisions", {"labelSelector": f"{SERVICE_LABEL}=rewriter"})
        self.requests += 1
        return {"items": [*self.revisions]}


def target_of(*watched: str, objects: ServiceObjects | None = None) -> tuple[ClusterTarget, Server]:
    """A target whose cache has the service, and of its revisions those that were watched."""
    objects = objects or knative()
    labelled = [
        {**item, "metadata": {**item["metadata"], "labels": {SERVICE_LABEL: "rewriter"}}}
        for item in objects.revisions.values()
    ]
    server = Server(labelled)
    cache = ObjectCache(cast(Api, server), lambda kind, thing, gone: None)
    cache._informers["inferenceservices"].handler("ADDED", objects.service)
    for item in labelled:
        if item["metadata"]["name"] in watched:
            cache._informers["revisions"].handler("ADDED", item)
    for informer in cache._informers.values():
        informer.begun.set()
    return ClusterTarget(cast(Api, server), cache, ROLLOUT), server


def test_a_revision_that_the_cache_lacks_is_asked_for() -> None:
    """Else what serves would be taken for nothing, and the canary for a first model, which gets everything."""
    for watched in ((), ("rev-1",), ("rev-2",)):
        target, server = target_of(*watched)

        observed = target.read()

        assert observed.rolled_out and observed.rolled_out.uri == OLD and observed.traffic == {NEW: 20, OLD: 80}
        assert server.requests == 1


@pytest.mark.parametrize("field", FIELDS)
def test_each_field_that_names_a_revision_counts(field: str) -> None:
    named: dict[str, Any] = dict.fromkeys(FIELDS, "rev-2")
    target, server = target_of("rev-2", objects=knative(traffic=[], **{**named, field: "rev-1"}))

    target.read()

    assert server.requests == 1


def test_a_service_whose_revision_is_gone_has_had_its_first_model() -> None:
    target, server = target_of("rev-2")
    server.revisions = [item for item in server.revisions if item["metadata"]["name"] == "rev-2"]

    observed = target.read()

    assert observed.rolled_out and observed.rolled_out.uri == "" and not observed.rolled_out.ready


def test_where_the_cache_has_them_nobody_is_asked() -> None:
    target, server = target_of("rev-1", "rev-2")

    assert target.read().traffic == {NEW: 20, OLD: 80} and server.requests == 0
