"""What KServe and Knative make of what is asked, as pure functions: which revision is rolled out, who gets how much.

percent None or 100    the newest ready revision is rolled out, and gets everybody
less                   the newest ready one gets so much, the one that is rolled out the rest
less, and the newest is rolled out already    the one before it is rolled out again
a release that is not ready    gets nothing: whoever was served goes on being served
"""

from collections.abc import Mapping

from serving.rollout.state import DesiredModel
from standins.rollout_local.service import LocalRevision, ServerStatus, ServiceStatus


def reconcile_status(
    status: ServiceStatus, asked: DesiredModel, generation: int, servers: Mapping[str, ServerStatus]
) -> ServiceStatus:
    """The status after one more look at the servers; the same again changes nothing."""
    status = _add_revision(status, asked).model_copy(update={"observed": generation, "servers": dict(servers)})
    newest = status.revisions[-1]
    if status.seen(newest.uri).url:
        status = status.model_copy(update={"latest_ready": newest.name})
    status = _roll_out(status, asked.percent)
    return _drop_old_revisions(status.model_copy(update={"shares": _split_traffic(status, asked.percent)}))


def needed_releases(status: ServiceStatus, asked: DesiredModel) -> set[str]:
    """The releases whose servers must run."""
    names = {status.latest_ready, status.rolled_out, *(name for name, share in status.shares.items() if share)}
    return {asked.uri, *(made.uri for made in status.revisions if made.name in names)}


def _add_revision(status: ServiceStatus, asked: DesiredModel) -> ServiceStatus:
    if status.revisions and status.revisions[-1].uri == asked.uri:
        return status
    count = status.count + 1
    made = LocalRevision(name=f"rev-{count}", uri=asked.uri)
    return status.model_copy(update={"revisions": (*status.revisions, made), "count": count})


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
    """The shares, once everybody who would get one answers; until then as they were."""
    if not status.latest_ready:
        return {}
    share = 100 if percent is None else percent
    wanted = {status.rolled_out: 100 - share}
    wanted[status.latest_ready] = wanted.get(status.latest_ready, 0) + share
    wanted = {name: share for name, share in wanted.items() if share}
    fresh = [made for name in wanted.keys() - status.shares.keys() if (made := status.named(name))]
    return wanted if all(status.seen(made.uri).url for made in fresh) else status.shares


def _drop_old_revisions(status: ServiceStatus) -> ServiceStatus:
    """Without the revisions that nothing can go back to."""
    kept = {status.rolled_out, status.before, status.latest_ready, status.revisions[-1].name, *status.shares}
    return status.model_copy(update={"revisions": tuple(made for made in status.revisions if made.name in kept)})
