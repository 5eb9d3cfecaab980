"""Ports of the rollout: interfaces and plain data for everything that a rollout reads and writes.

Every port raises OutageError if it gets no answer; a write may have happened nevertheless. Ledger and Target raise
ConflictError if the object is no longer at the expected version.
"""

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple, Protocol

from serving.rollout.sequential import Count
from serving.rollout.spec import RolloutSpec
from serving.rollout.state import DesiredModel, State

DeploymentMode = Literal["Serverless", "Standard"]


class Revision(NamedTuple):
    """One generation of a model's pods. `ready` is read from the revision or Deployment, not from the service."""

    name: str
    uri: str
    ready: bool
    failed: str = ""
    """Reason why the pods fail, if the cluster gives one; else ""."""


class ServiceSnapshot(NamedTuple):
    """Snapshot of an InferenceService: the model that its spec asks for, and the models that it serves."""

    resource_version: str
    generation: int
    settled: bool
    """True if the cluster has created the revision of this generation and set its traffic."""
    desired: DesiredModel
    rest: str
    """Digest of everything else that influences what is served: all but the model and its traffic share."""
    newest: Revision | None
    rolled_out: Revision | None
    """Revision that has, or last had, all of the traffic; None if no model was ever served."""
    traffic: Mapping[str, int]
    """Percent of the traffic by the URI of the model."""
    mode: DeploymentMode
    unsupported: str = ""
    """Reason why this service cannot have a canary; "" if it can."""
    editor: str = ""
    """Program that last changed the spec; "" if it was the controller."""
    uid: str = ""
    """Uid of the InferenceService; "" if it does not exist."""


class Window(NamedTuple):
    """Counts of both models between a cursor and `until`."""

    until: float
    canary: Mapping[str, Count]
    """Counts by check. `errors` always exists and counts all requests; `quality` counts untied and lost pairs."""
    stable: Mapping[str, Count]


class Proof(NamedTuple):
    """Result of verifying a release and its lineage. The release may be served if `missing` is empty."""

    digest: str
    model: str
    missing: tuple[str, ...]


class RolloutSnapshot(NamedTuple):
    """Snapshot of a ModelRollout: spec, state and version."""

    spec: RolloutSpec
    state: State
    resource_version: str


class Ledger(Protocol):
    """Port to one ModelRollout. Only a controller whose write at the expected version succeeds may act."""

    def read(self) -> RolloutSnapshot: ...

    def write(self, state: State, expected: str) -> None: ...


class Target(Protocol):
    """Port to one InferenceService."""

    def read(self) -> ServiceSnapshot: ...

    def write(self, desired: DesiredModel, expected: str) -> None: ...


class Ports(NamedTuple):
    ledger: Ledger
    target: Target
    count_since: Callable[[str, str, float | None], Window | None]
    """Function that counts the requests of the canary and of the stable version since a cursor; None without data.

    The source has its own clock, which also dates the end of a window. Without a cursor, or if this clock was set
    back, the window has no counts, only the time of its end.
    """

    prove: Callable[[str], Proof]
    """Function that verifies the release at a URI with its whole lineage, and returns the proof."""

    now: Callable[[], float]
    leads: Callable[[], bool]
    """Function that returns True if this controller holds the lease. It may be outdated, so writes check versions."""
