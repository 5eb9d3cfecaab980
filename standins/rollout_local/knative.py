"""Rules by which KServe and Knative split the traffic, as pure functions.

percent is None or 100         the newest ready revision is rolled out and gets all of the traffic
percent is below 100           the newest ready revision gets this share, the rolled-out revision gets the rest
... and the newest revision    the revision before it is rolled out again
    is already rolled out
a revision is not ready        it gets no traffic; the shares stay as they were
"""

from collections.abc import Mapping

from serving.rollout.state import DesiredModel
from standins.rollout_local.service import LocalRevision, ServerStatus, ServiceStatus


def reconcile_status(
    status: ServiceStatus, desired: DesiredModel, generation: int, servers: Mapping[str, ServerStatus]
) -> ServiceStatus:
    """Compute the status for the current servers. A repeated call with the result changes nothing."""
    status = _add_revision(status, desired).model_copy(update={"observed": generation, "servers": dict(servers)})
    newest = status.revisions[-1]
    if status.server(newest.uri).url:
        status = status.model_copy(update={"latest_ready": newest.name})
    status = _roll_out(status, desired.percent)
    return _drop_old_revisions(status.model_copy(update={"shares": _split_traffic(status, desired.percent)}))


def needed_releases(status: ServiceStatus, desired: DesiredModel) -> set[str]:
    """Return the URIs of the releases whose servers must run."""
    names = {status.latest_ready, status.rolled_out, *(name for name, share in status.shares.items() if share)}
    return {desired.uri, *(revision.uri for revision in status.revisions if revision.name in names)}


def _add_revision(status: ServiceStatus, desired: DesiredModel) -> ServiceStatus:
    if status.revisions and status.revisions[-1].uri == desired.uri:
        return status
    count = status.count + 1
    revision = LocalRevision(name=f"rev-{count}", uri=desired.uri)
    return status.model_copy(update={"revisions": (*status.revisions, revision), "count": count})


def _roll_out(status: ServiceStatus, percent: int | None) -> ServiceStatus:
    latest, newest = status.latest_ready, status.revisions[-1].name
    if not latest:
        return status
    if not status.rolled_out or percent in (None, 100):
        if latest == status.rolled_out:
            return status
        return status.model_copy(update={"before": status.rolled_out or latest, "rolled_out": latest})
    if latest == status.rolled_out == newest and status.before:
        return status.model_copy(update={"rolled_out": status.before})
    return status


def _split_traffic(status: ServiceStatus, percent: int | None) -> Mapping[str, int]:
    """Compute the shares by revision. Until every revision with a share answers, the old shares stay."""
    if not status.latest_ready:
        return {}
    share = 100 if percent is None else percent
    shares = {status.rolled_out: 100 - share}
    shares[status.latest_ready] = shares.get(status.latest_ready, 0) + share
    shares = {name: share for name, share in shares.items() if share}
    fresh = [revision for name in shares.keys() - status.shares.keys() if (revision := status.find_revision(name))]
    return shares if all(status.server(revision.uri).url for revision in fresh) else status.shares


def _drop_old_revisions(status: ServiceStatus) -> ServiceStatus:
    """Keep the newest, latest ready, rolled-out and previously rolled-out revisions and those with traffic; drop the
    others."""
    names = {status.rolled_out, status.before, status.latest_ready, status.revisions[-1].name, *status.shares}
    return status.model_copy(
        update={"revisions": tuple(revision for revision in status.revisions if revision.name in names)}
    )
