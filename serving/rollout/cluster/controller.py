"""Controller that reconciles every rollout under way, at intervals and whenever one of its objects changes."""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import NamedTuple

from qinglan.errors import ConfigError, ConflictError, OutageError
from qinglan.kubernetes.client import Api
from qinglan.kubernetes.model_rollouts import is_under_way, next_rollout
from qinglan.lineage.signing.trust import TrustPolicy
from serving.rollout import reconciler
from serving.rollout.cluster import events
from serving.rollout.cluster.evidence import PrometheusEvidence
from serving.rollout.cluster.inference_service import Object
from serving.rollout.cluster.lease import ClusterLease
from serving.rollout.cluster.ledger import ROLLOUTS, ClusterLedger, UnreadableSpecError, parse_rollout, parse_state
from serving.rollout.cluster.metrics import ControllerStatus, Metrics, judges_quality
from serving.rollout.cluster.object_cache import SERVICE_LABEL, ObjectCache
from serving.rollout.cluster.prometheus import PrometheusClient
from serving.rollout.cluster.release_verifier import prove_release
from serving.rollout.cluster.schedule import Schedule
from serving.rollout.cluster.target import ClusterTarget
from serving.rollout.history import HistorySigner
from serving.rollout.ports import Ports, RolloutSnapshot
from serving.rollout.state import DecisionRecord, iso_timestamp

AT_ONCE = 8
TICK = 0.5
AGAIN_SECONDS = 1.0
REPEAT_EVENTS_SECONDS = 3600.0
"""Age in seconds up to which a restarted controller publishes decision records as Events again. An Event that exists
is not duplicated."""
RECHECK_HISTORY_SECONDS = 86400.0
"""Age in seconds up to which a restarted controller attaches the missing histories of ended rollouts."""

log = logging.getLogger(__name__)


class Settings(NamedTuple):
    prometheus: PrometheusClient
    policy: Callable[[], TrustPolicy]
    """Function that reads the trust policy. It is called at each reconcile, because a key may be revoked any time."""
    reconcile_seconds: float = 30.0
    standard_canary: bool = False
    history: HistorySigner | None = None
    shadowed: frozenset[str] = frozenset()
    """InferenceServices for which a shadow runs; by default the check `quality` also applies to their canaries."""


class Controller:
    """Controller of one namespace. It runs until `stop` is set, and ends after the reconciles under way."""

    def __init__(self, api: Api, lease: ClusterLease, settings: Settings) -> None:
        self.api, self.lease, self.settings = api, lease, settings
        self.cache, self.schedule = ObjectCache(api, self._on_change), Schedule()
        self.metrics = Metrics(self._status)
        self.ticked = time.monotonic()
        self._versions: dict[str, tuple[str, int]] = {}
        """Newest uid and generation by rollout name. A new uid means a new rollout with the same name."""
        self._events: dict[str, DecisionRecord | None] = {}
        self._last_success: dict[str, float] = {}
        """Time of the last successful reconcile, by rollout name."""

    def run(self, stop: threading.Event) -> None:
        led = False
        self.cache.start()
        try:
            with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="reconcile") as pool:
                while not stop.is_set():
                    self.ticked = time.monotonic()
                    leads = self.lease.held()
                    if leads and not led:
                        log.info("leads in %s", self.api.namespace)
                        for rollout in self.cache.all(ROLLOUTS):
                            if is_under_way(rollout) or _ended_lately(rollout):
                                self.schedule.enqueue(rollout["metadata"]["name"])
                    led = leads
                    if not leads:
                        stop.wait(TICK)
                        continue
                    for name in self.schedule.take(AT_ONCE, TICK):
                        pool.submit(self._reconcile_safely, name)
        finally:
            self.cache.stop()

    def _on_change(self, kind: str, changed: Object, deleted: bool) -> None:
        """Enqueue the rollout that a change concerns. Status writes are ignored; they do not change the
        generation."""
        metadata = changed["metadata"]
        if kind != ROLLOUTS:
            labels = metadata.get("labels") or {}
            self._enqueue_service(metadata["name"] if kind == "inferenceservices" else labels.get(SERVICE_LABEL))
            return
        name, version = metadata["name"], (str(metadata.get("uid")), int(metadata.get("generation", 0)))
        known = self._versions.pop(name, None)
        if known and (deleted or known[0] != version[0]):
            self.schedule.forget(name)
            self._events.pop(name, None)
            self._last_success.pop(name, None)
        if deleted:
            # The next rollout of its InferenceService may begin.
            self._enqueue_service((changed.get("spec") or {}).get("inferenceService"))
            return
        self._versions[name] = version
        if known != version:
            self.schedule.enqueue(name)

    def _enqueue_service(self, service: str | None) -> None:
        if rollout := self._next_rollout(service):
            self.schedule.enqueue(rollout["metadata"]["name"])

    def _next_rollout(self, service: str | None) -> Object | None:
        """Return the rollout of this InferenceService that is carried out now; None if all have ended."""
        return next_rollout(
            rollout for rollout in self.cache.all(ROLLOUTS) if rollout["spec"]["inferenceService"] == service
        )

    def _is_next(self, rollout: Object) -> bool:
        first = self._next_rollout(rollout["spec"]["inferenceService"])
        return first is None or first["metadata"]["name"] == rollout["metadata"]["name"]

    def _reconcile_safely(self, name: str) -> None:
        """Reconcile one rollout. An exception is only logged and published, so that other rollouts continue."""
        began = time.monotonic()
        result: str = "failed"
        try:
            result = self.reconcile(name)
        except Exception as error:
            log.exception("%s: the reconcile failed", name)
            self._publish_failure(name, error)
        finally:
            self.metrics.observe_reconcile(result, time.monotonic() - began)
            again = AGAIN_SECONDS if result == "again" else self.settings.reconcile_seconds
            self.schedule.requeue(name, None if result == "done" else again)
            if result == "done":
                self._last_success.pop(name, None)
            elif result not in ("failed", "unreachable"):
                self._last_success[name] = time.monotonic()

    def reconcile(self, name: str) -> str:
        """Reconcile a rollout, unless an older rollout of its InferenceService has not ended. Returns the result."""
        rollout = self.cache.get(ROLLOUTS, name)
        if rollout is None:
            self.schedule.forget(name)
            return "done"
        if is_under_way(rollout) and not self._is_next(rollout):
            return "done"
        ledger = ClusterLedger(self.api, self.cache, name, self.settings.shadowed)
        try:
            snapshot = parse_rollout(rollout, self.settings.shadowed)
        except UnreadableSpecError as error:
            if not is_under_way(rollout):
                return "done"
            if (rollout.get("status") or {}).get("phase", "Verify") != "Verify":
                raise  # the rollout has changed something already, so it cannot just be refused
            ledger.refuse(str(error), time.time())
            return "done"
        result: str = reconciler.reconcile(self._ports(ledger, rollout, snapshot))
        self._publish_news(name)
        return self._finish(name) if result == "done" else result

    def _ports(self, ledger: ClusterLedger, rollout: Object, snapshot: RolloutSnapshot) -> Ports:
        settings = self.settings
        return Ports(
            ledger=ledger,
            target=ClusterTarget(self.api, self.cache, rollout, settings.standard_canary),
            count_since=PrometheusEvidence(settings.prometheus, self.api.namespace, snapshot.spec.checks).since,
            # The policy is read at each call, because a key may be revoked at any time.
            prove=lambda uri: prove_release(uri, snapshot.spec.release, settings.policy()),
            now=time.time,
            leads=self.lease.held,
        )

    def _finish(self, name: str) -> str:
        """Attach an ended rollout's history to its release, and enqueue the InferenceService's next rollout."""
        rollout = self.cache.get(ROLLOUTS, name)
        if rollout is None:
            return "done"
        self._enqueue_service(rollout["spec"]["inferenceService"])
        if self.settings.history is not None:
            try:
                self.settings.history.attach(self.api.namespace, name, parse_rollout(rollout, self.settings.shadowed))
            except (OutageError, ConflictError) as error:
                log.warning("%s: the history is not attached yet: %s", name, error)
                return "unreachable"
        return "done"

    def _publish_news(self, name: str) -> None:
        """Publish the decision records after the last published record as Events.

        After a restart the last published record is unknown, so the records of the last hour are published again.
        """
        rollout, last = self.cache.get(ROLLOUTS, name), self._events.get(name)
        history = parse_state(rollout).history if rollout else ()
        if rollout is None or not history or last == history[-1]:
            return
        if last in history:
            records = list(history[history.index(last) + 1 :])
        else:
            records = [record for record in history if _age(record) < REPEAT_EVENTS_SECONDS]
        for record in records:
            log.info("%s: %s, %s: %s", name, record.phase, record.action, record.why)
        events.publish_events(self.api, rollout, records)
        self._events[name] = history[-1]

    def _publish_failure(self, name: str, error: Exception) -> None:
        rollout = next((each for each in self.cache.all(ROLLOUTS) if each["metadata"]["name"] == name), None)
        if rollout is None:
            return
        why, phase = f"{type(error).__name__}: {error}", (rollout.get("status") or {}).get("phase", "Verify")
        record = DecisionRecord(at=iso_timestamp(time.time()), phase=phase, action=events.FAILED, why=why)
        events.publish_events(self.api, rollout, [record])

    def _status(self) -> ControllerStatus:
        rollouts = [rollout for rollout in self.cache.all(ROLLOUTS) if is_under_way(rollout)]
        phases = Counter((rollout.get("status") or {}).get("phase", "Verify") for rollout in rollouts)
        judging, leads, waited = sum(map(judges_quality, rollouts)), self.lease.held(), 0.0
        if leads:
            now = time.monotonic()
            names = (rollout["metadata"]["name"] for rollout in rollouts if self._is_next(rollout))
            waited = max((now - self._last_success.setdefault(name, now) for name in names), default=0.0)
        return ControllerStatus(phases, judging, leads, waited, dict(self.api.calls))


def _ended_lately(rollout: Object) -> bool:
    """True if the rollout ended within the last day. A status that cannot be read gives False."""
    try:
        history = parse_state(rollout).history
        return bool(history) and _age(history[-1]) < RECHECK_HISTORY_SECONDS
    except (ConfigError, ValueError):
        return False


def _age(record: DecisionRecord) -> float:
    return (datetime.now(UTC) - datetime.fromisoformat(record.at)).total_seconds()
