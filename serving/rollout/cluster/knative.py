"""Read a Serverless InferenceService: its revisions and their shares of the traffic.

KServe gives `canaryTrafficPercent` of the traffic to the newest *ready* revision, and the rest to the rolled-out
revision, which is the last one that had all of the traffic.
"""

from serving.rollout.cluster.inference_service import (
    Object,
    ServiceObjects,
    condition,
    condition_true,
    desired_model,
    fetched_uri,
)
from serving.rollout.ports import Revision

GONE: Object = {"metadata": {}}
"""Placeholder for a deleted revision that a status still names; it has no URI and is not ready."""

ROUTED = "PredictorRouteReady"
"""KServe's condition that is true if Knative routes the traffic by the shares in the spec."""


def newest(objects: ServiceObjects) -> Revision | None:
    """Return the latest created revision. It counts as ready only if it is also the latest ready revision."""
    status = predictor_status(objects.service)
    name = status.get("latestCreatedRevision", "")
    revision = objects.revisions.get(name)
    if revision is None:
        return None
    is_latest_ready = status.get("latestReadyRevision") == name
    return _read_revision(name, revision, is_latest_ready)


def rolled_out(objects: ServiceObjects) -> Revision | None:
    """Return the revision that the status names as rolled out, even if it was deleted; None if there is no name."""
    name = predictor_status(objects.service).get("latestRolledoutRevision", "")
    return _read_revision(name, objects.revisions.get(name, GONE), True) if name else None


def traffic(objects: ServiceObjects) -> dict[str, int]:
    """Return the percent of the traffic by the URI of the model."""
    shares: dict[str, int] = {}
    for name, percent in _shares(objects.service).items():
        uri = fetched_uri(objects.revisions.get(name, GONE))
        shares[uri] = shares.get(uri, 0) + percent
    return {uri: percent for uri, percent in shares.items() if percent}


def settled(objects: ServiceObjects) -> bool:
    """Return True if KServe has created the spec's revision and routes the traffic by the spec's shares."""
    # status.observedGeneration does not help, because it belongs to Knative's own object.
    status, desired = predictor_status(objects.service), desired_model(objects.service)
    revision = objects.revisions.get(status.get("latestCreatedRevision", ""))
    if revision is None or fetched_uri(revision) != desired.uri or not condition_true(objects.service, ROUTED):
        return False
    latest = sum(target.get("percent") or 0 for target in status.get("traffic") or () if target.get("latestRevision"))
    first_model = status.get("latestReadyRevision") == status.get("latestRolledoutRevision") == status.get(
        "latestCreatedRevision"
    ) and not status.get("previousRolledoutRevision")  # a first model has all of the traffic, at any requested share
    return latest == (100 if desired.percent is None or first_model else desired.percent)


def named_revisions(service: Object) -> set[str]:
    """Return the names of the revisions that the status lists as created, ready, rolled out, or routed to."""
    status = predictor_status(service)
    latest = (status.get(f"latest{what}Revision") for what in ("Created", "Ready", "Rolledout"))
    return {str(name) for name in (*latest, *_shares(service)) if name}


def predictor_status(service: Object) -> Object:
    status: Object = service.get("status", {}).get("components", {}).get("predictor") or {}
    return status


def _shares(service: Object) -> dict[str, int]:
    shares: dict[str, int] = {}
    for target in predictor_status(service).get("traffic") or ():
        name = str(target.get("revisionName", ""))
        shares[name] = shares.get(name, 0) + int(target.get("percent") or 0)
    return shares


def _read_revision(name: str, revision: Object, is_latest_ready: bool) -> Revision:
    ready, failure = condition(revision, "Ready"), ""
    if ready.get("status") == "False":  # Knative has given the revision up, or its pods give a reason
        failure = ": ".join(str(ready[part]) for part in ("reason", "message") if ready.get(part)) or "not ready"
    return Revision(name, fetched_uri(revision), is_latest_ready and ready.get("status") == "True", failure)
