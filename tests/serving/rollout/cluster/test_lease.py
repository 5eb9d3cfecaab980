"""The lease decides who leads, whatever the API server has under its name."""

import time
from typing import Any

import pytest

from serving.rollout.cluster.lease import ClusterLease


class Leases:
    """An API server with one Lease."""

    def __init__(self, lease: dict[str, Any]) -> None:
        self.lease = lease

    def get(self, resource: str, name: str) -> dict[str, Any]:
        return self.lease

    def replace(self, resource: str, name: str, lease: dict[str, Any]) -> None:
        self.lease = lease


def test_a_lease_without_a_spec_is_free() -> None:
    api = Leases({"metadata": {"name": "qinglan-rollout", "resourceVersion": "1"}})
    lease = ClusterLease(api, "me")  # type: ignore[arg-type]

    assert lease.try_once()
    assert lease.held()
    assert api.lease["spec"]["holderIdentity"] == "me"


def test_an_answer_that_is_no_lease_does_not_end_the_renewing(monkeypatch: pytest.MonkeyPatch) -> None:
    api = Leases({"metadata": {}, "spec": {"holderIdentity": "another"}})  # without a resourceVersion
    lease = ClusterLease(api, "me", seconds=0.3)  # type: ignore[arg-type]
    failures: list[str] = []
    monkeypatch.setattr("serving.rollout.cluster.lease.log.exception", failures.append)
    lease.start()
    until = time.monotonic() + 60
    while not failures and time.monotonic() < until:
        time.sleep(0.01)

    api.lease = {"metadata": {"resourceVersion": "2"}, "spec": {}}
    held = False
    while not held and time.monotonic() < until:
        time.sleep(0.01)
        held = lease.held()
    lease.stop()

    assert failures and held
