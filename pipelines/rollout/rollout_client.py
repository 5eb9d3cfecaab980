"""The ModelRollouts of one namespace: read, changed and watched; a refusal is told in words."""

import queue
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from pipelines.rollout.view import RolloutView, find_rollout, read_rollout
from qinglan.errors import DataError
from qinglan.kubernetes.api_errors import ApiError, explain_api_error
from qinglan.kubernetes.client import Api, connect
from qinglan.kubernetes.informer import Informer
from qinglan.kubernetes.model_rollouts import PLURAL, Object

POLL_SECONDS = 0.5
OUTAGE_SECONDS = 300.0
"""An API server that restarts is waited for so long; the rollout goes on without us."""

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
        """The rest of the spec stays as it was made: the API server sees to it."""
        with self._explained():
            _retry_busy(lambda: self.api.merge(PLURAL, name, {"spec": dict(spec)}))

    def follow(self, name: str, heard: Callable[[RolloutView], None]) -> RolloutView:
        """Every state of it as it comes, to its end."""
        news: queue.Queue[tuple[str, Object]] = queue.Queue()
        informer = Informer(
            self.api, PLURAL, {"fieldSelector": f"metadata.name={name}"}, lambda *what: news.put(what)
        )
        informer.start()
        try:
            return self._followed(name, informer, news, heard)
        finally:
            informer.stop()

    def _followed(
        self,
        name: str,
        informer: Informer,
        news: "queue.Queue[tuple[str, Object]]",
        heard: Callable[[RolloutView], None],
    ) -> RolloutView:
        known = False
        while True:
            begun = informer.begun.is_set()
            try:
                what, rollout = news.get(timeout=POLL_SECONDS)
            except queue.Empty:
                self._raise_of(informer)
                what, rollout = ("DELETED" if begun and not known else ""), {}
            if what == "DELETED":
                raise DataError(f"{name}: somebody deleted it while it was watched. What it did stands as it is.")
            if not what:
                continue
            known, shown = True, read_rollout(rollout)
            heard(shown)
            if shown.done:
                return shown

    def _raise_of(self, informer: Informer) -> None:
        if informer.trouble is None:
            return
        since, refusal = informer.trouble
        if not refusal.passing or time.monotonic() - since > OUTAGE_SECONDS:
            raise explain_api_error(refusal, self.api.host, self.namespace)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except ApiError as refusal:
            raise explain_api_error(refusal, self.api.host, self.namespace) from refusal


def _retry_busy(call: Callable[[], Result]) -> Result:
    """A server that says 429 has done nothing yet; just after a CRD was applied it says so for a second."""
    for pause in BUSY_PAUSES:
        try:
            return call()
        except ApiError as refusal:
            if refusal.status != 429:
                raise
        time.sleep(pause)
    return call()
