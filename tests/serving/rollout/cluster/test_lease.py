"""The lease decides who leads, whatever the API server has under its name."""

from typing import Any

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
