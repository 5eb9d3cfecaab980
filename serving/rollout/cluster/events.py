"""Publish a rollout's decisions as Events of its ModelRollout, which `kubectl describe` shows.

An Event's name is a digest of its content, so an Event that is published twice exists only once.
"""

import hashlib
import logging
from collections.abc import Iterable

from qinglan.errors import ConflictError, QinglanError
from qinglan.kubernetes.client import Api
from qinglan.kubernetes.model_rollouts import GROUP, KIND, VERSION
from serving.rollout.cluster.api_errors import translate_refusals
from serving.rollout.cluster.inference_service import FIELD_MANAGER, Object
from serving.rollout.state import DecisionRecord

LONGEST = 1000
FAILED = "failed"
WARNINGS = {"blind", "unverified", "roll back", "foreign edit", "restore", "verify again", FAILED}
WARNINGS |= {"Refused", "RolledBack", "Aborted"}

log = logging.getLogger(__name__)


def publish_events(api: Api, rollout: Object, records: Iterable[DecisionRecord]) -> None:
    """Publish records as Events. Failures are only logged, because the status has every decision anyway."""
    for record in records:
        try:
            with translate_refusals(api):
                api.create("events", event_object(rollout, record))
        except ConflictError:
            continue
        except QinglanError as error:
            log.warning("%s: an event was not published: %s", rollout["metadata"]["name"], error)


def event_object(rollout: Object, record: DecisionRecord) -> dict[str, object]:
    # https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/event-v1/
    metadata = rollout["metadata"]
    when = "" if record.action == FAILED else record.at  # the same failure at every reconcile is one Event
    identity = "\n".join((str(metadata["uid"]), when, record.phase, record.action, record.why))
    at = record.at.replace("+00:00", "Z")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{metadata['name'][:200]}.{hashlib.sha256(identity.encode()).hexdigest()[:16]}",
            "namespace": metadata["namespace"],
            "labels": {"app.kubernetes.io/part-of": "qinglan"},
        },
        "involvedObject": {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": KIND,
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": metadata["uid"],
        },
        "type": "Warning" if record.action in WARNINGS else "Normal",
        "reason": "".join(word[0].upper() + word[1:] for word in record.action.split()),
        "message": record.why[:LONGEST],
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
        "source": {"component": FIELD_MANAGER},
        "reportingComponent": FIELD_MANAGER,
    }
