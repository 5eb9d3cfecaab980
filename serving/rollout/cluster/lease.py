"""Elect the leader with a Lease of the API server, which a thread renews.

Another controller's lease counts as expired if it has not changed for SECONDS by this machine's monotonic clock; the
clocks of two machines are never compared. The lease only saves work; the ledger's version prevents write conflicts.
https://kubernetes.io/docs/concepts/architecture/leases/
"""

import logging
import threading
import time
from datetime import UTC, datetime
from typing import Any

from qinglan.errors import ConfigError, ConflictError, QinglanError
from qinglan.kubernetes.client import Api
from serving.rollout.cluster.api_errors import translate_refusals

NAME = "qinglan-rollout"
SECONDS = 15.0
RENEWED_EVERY = 5.0
MARGIN = 3.0
"""Seconds before the lease expires at which its holder already stops acting."""

log = logging.getLogger(__name__)


class ClusterLease:
    def __init__(self, api: Api, holder: str, seconds: float = SECONDS) -> None:
        self.api, self.holder, self.seconds = api, holder, seconds
        self._until = 0.0
        self._rival_lease: tuple[str, float] = ("", 0.0)
        """resourceVersion of another holder's lease, and the time at which it was first read."""
        self.trouble = ""
        """Reason why this controller can never lead, such as a missing permission; "" if there is none."""
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._renew_loop, name="lease", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Release the lease, so that the next leader need not wait until it expires."""
        self._stopped.set()
        self._thread.join(self.seconds)
        if self.held():
            self._until = 0.0
            try:
                self._write(self._read(), "")
            except QinglanError as error:
                log.warning("the lease could not be given back: %s", error)

    def held(self) -> bool:
        return time.monotonic() < self._until

    def try_once(self) -> bool:
        """Take or renew the lease if it is free or held by this controller. Returns True if it is now held."""
        started = time.monotonic()
        try:
            lease = self._read()
            if lease is not None and not self._free(lease, started):
                self._until = 0.0
                return False
            self._write(lease, self.holder)
        except ConflictError:
            self._until = 0.0
            return False
        self._until = started + self.seconds - MARGIN * self.seconds / SECONDS
        return True

    def _renew_loop(self) -> None:
        while not self._stopped.is_set():
            try:
                self.try_once()
                self.trouble = ""
            except QinglanError as error:
                log.warning("the lease was not renewed: %s", error)
                self.trouble = str(error) if isinstance(error, ConfigError) else self.trouble
            except Exception:  # if the thread ended, the controller would wait for ever
                log.exception("the lease was not renewed: the API server's answer could not be read")
            self._stopped.wait(RENEWED_EVERY * self.seconds / SECONDS)

    def _read(self) -> dict[str, Any] | None:
        with translate_refusals(self.api):
            lease = self.api.get("leases", NAME)
        return lease and {**lease, "spec": lease.get("spec") or {}}  # a Lease need not have a spec

    def _free(self, lease: dict[str, Any], now: float) -> bool:
        holder = lease["spec"].get("holderIdentity")
        if holder in (None, "", self.holder):
            return True
        version = str(lease["metadata"]["resourceVersion"])
        if self._rival_lease[0] != version:
            self._rival_lease = version, now
        return now - self._rival_lease[1] > self.seconds

    def _write(self, lease: dict[str, Any] | None, holder: str) -> None:
        """Write the lease if it is unchanged since it was read, so that only one of two controllers can take it."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"holderIdentity": holder, "leaseDurationSeconds": max(round(self.seconds), 1), "renewTime": now}
        with translate_refusals(self.api):
            if lease is None:
                body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": NAME}}
                self.api.create("leases", {**body, "spec": {**spec, "acquireTime": now}})
            else:
                acquired = now if lease["spec"].get("holderIdentity") != holder else lease["spec"].get("acquireTime")
                lease["spec"] = {**spec, "acquireTime": acquired}
                self.api.replace("leases", NAME, lease)
