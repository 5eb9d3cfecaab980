"""Read, change and watch the ModelRollouts of a namespace; errors of the API server are explained."""

import queue
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from commands.rollout.view import RolloutView, find_rollout, read_rollout
from qinglan.errors import DataError
from qinglan.kubernetes.api_errors import ApiError, explain_api_error
from qinglan.kubernetes.client import Api, connect
from qinglan.kubernetes.informer import Informer
from qinglan.kubernetes.model_rollouts import PLURAL, Object

POLL_SECONDS = 0.5
OUTAGE_SECONDS = 300.0
"""Seconds to wait for an API server that restarts; the rollout itself goes on meanwhile."""

BUSY_PAUSES = (0.5, 1.0, 2.0, 4.0)
Result = TypeVar("Result")


class RolloutClient:
    def __init__(self, namespace: str = "", api: Api | None = None) -> None:
        self.api = (api or connect()).within(namespace)

    @property
    def namespace(self) -> str:
        return self.api.namespace

    def all(self) -> list[Object]:
        with self._explained():
            return list(_retry_busy(lambda: self.api.all(PLURAL, {}))["items"])

    def get(self, name: str) -> RolloutView:
        rollouts = self.all()
        return read_rollout(find_rollout(rollouts, name, self.namespace), rollouts)

    def change(self, name: str, spec: Mapping[str, Any]) -> None:
        """Change these fields of the spec; the API server refuses changes of any other."""
        with self._explained():
            _retry_busy(lambda: self.api.merge(PLURAL, name, {"spec": dict(spec)}))

    def follow(self, name: str, on_change: Callable[[RolloutView], None]) -> RolloutView:
        """Report every state of the rollout until it ends; returns the last."""
        news: queue.Queue[tuple[str, Object]] = queue.Queue()
        informer = Informer(
            self.api, PLURAL, {"fieldSelector": f"metadata.name={name}"}, lambda *what: news.put(what)
        )
        informer.start()
        try:
            return self._followed(name, informer, news, on_change)
        finally:
            informer.stop()

    def _followed(
        self,
        name: str,
        informer: Informer,
        news: "queue.Queue[tuple[str, Object]]",
        on_change: Callable[[RolloutView], None],
    ) -> RolloutView:
        listed = False
        while True:
            # Read before the wait: all that the informer's first listing held is in the queue by then, so that an
            # empty queue means that the rollout is gone.
            begun = informer.begun.is_set()
            try:
                change, rollout = news.get(timeout=POLL_SECONDS)
            except queue.Empty:
                self._raise_of(informer)
                change, rollout = ("DELETED" if begun and not listed else ""), {}
            if change == "DELETED":
                raise DataError(f"{name}: somebody deleted it while it was watched. What it did stands as it is.")
            if not change:
                continue
            listed, shown = True, read_rollout(rollout)
            on_change(shown)
            if shown.done:
                return shown

    def _raise_of(self, informer: Informer) -> None:
        if (trouble := informer.trouble) is None:  # read once: the informer's thread may clear it at any time
            return
        since, refusal = trouble
        if not refusal.passing or time.monotonic() - since > OUTAGE_SECONDS:
            raise explain_api_error(refusal, self.api.host, self.namespace)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except ApiError as refusal:
            raise explain_api_error(refusal, self.api.host, self.namespace) from refusal


def _retry_busy(call: Callable[[], Result]) -> Result:
    """Retry a call that the server answers with 429, as it does for a second after a CRD was applied
    (k8s.io/apiextensions-apiserver, customresource_handler.go: storage is re-initializing)."""
    for pause in BUSY_PAUSES:
        try:
            return call()
        except ApiError as refusal:
            if refusal.status != 429:
                raise
        time.sleep(pause)
    return call()
