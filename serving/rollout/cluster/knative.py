"""A Serverless InferenceService: its revisions, and the shares of the newest ready and the last rolled out one.

KServe gives `canaryTrafficPercent` to the newest *ready* revision, and the rest to the last one that had all of it.
"""

from collections.abc import Mapping

from serving.rollout.cluster.inference_service import (
    Object,
    ServiceObjects,
    condition,
    condition_true,
    desired_model,
    fetched_uri,
)
from serving.rollout.ports import Revision

ROUTED = "PredictorRouteReady"
PASSING = ("", "Unknown")
"""A condition that is not decided yet."""


def newest(objects: ServiceObjects) -> Revision | None:
    """The latest that was made, ready only where it is also the latest that came to be."""
    status = predictor_status(objects.service)
    name = status.get("latestCreatedRevision", "")
    revision = objects.revisions.get(name)
    if revision is None:
        return None
    came = status.get("latestReadyRevision") == name
    return _read_revision(name, revision, came)


def rolled_out(objects: ServiceObjects) -> Revision | None:
    name = predictor_status(objects.service).get("latestRolledoutRevision", "")
    revision = objects.revisions.get(name)
    return _read_revision(name, revision, True) if revision else None


def traffic(objects: ServiceObjects) -> dict[str, int]:
    """Per cent by URI."""
    shares: dict[str, int] = {}
    for name, percent in _shares(objects.service).items():
        uri = fetched_uri(objects.revisions.get(name, {"metadata": {}}))
        shares[uri] = shares.get(uri, 0) + percent
    return {uri: percent for uri, percent in shares.items() if percent}


def settled(objects: ServiceObjects) -> bool:
    """Whether revisions and shares are those of the spec that was read.

    status.observedGeneration does not tell: it is that of Knative's own object.
    """
    status, asked = predictor_status(objects.service), desired_model(objects.service)
    made = objects.revisions.get(status.get("latestCreatedRevision", ""))
    if made is None or fetched_uri(made) != asked.uri or not condition_true(objects.service, ROUTED):
        return False
    latest = sum(one.get("percent") or 0 for one in status.get("traffic") or () if one.get("latestRevision"))
    first = status.get("latestReadyRevision") == status.get("latestRolledoutRevision") == status.get(
        "latestCreatedRevision"
    ) and not status.get("previousRolledoutRevision")  # a first model has everything, whatever is asked for
    return latest == (100 if asked.percent is None or first else asked.percent)


def predictor_status(service: Object) -> Object:
    found: Object = service.get("status", {}).get("components", {}).get("predictor") or {}
    return found


def _shares(service: Object) -> dict[str, int]:
    found: dict[str, int] = {}
    for one in predictor_status(service).get("traffic") or ():
        name = str(one.get("revisionName", ""))
        found[name] = found.get(name, 0) + int(one.get("percent") or 0)
    return found


def _read_revision(name: str, revision: Object, came: bool) -> Revision:
    return Revision(name, fetched_uri(revision), came and condition_true(revision, "Ready"), _failure(revision))


def _failure(revision: Mapping[str, object]) -> str:
    """Why it does not come to be, where Knative has given it up or its pods say so."""
    said = condition(revision, "Ready")
    if said.get("status") != "False":
        return ""
    return ": ".join(str(said[part]) for part in ("reason", "message") if said.get(part)) or "not ready"
