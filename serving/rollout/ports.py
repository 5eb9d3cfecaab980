"""The ports of the rollout: what it reads and writes, as plain data. Adapters speak Kubernetes and Prometheus.

Every port raises OutageError if it got no answer; a write may have happened all the same. The two that write raise
ConflictError if the object is no longer at the expected version.
"""

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple, Protocol

from serving.rollout.sequential import Count
from serving.rollout.spec import RolloutSpec
from serving.rollout.state import DesiredModel, State

DeploymentMode = Literal["Serverless", "Standard"]


class Revision(NamedTuple):
    """One generation of a model's pods. `ready` comes from the revision or ReplicaSet, not from the service."""

    name: str
    uri: str
    ready: bool
    failed: str = ""
    """The reason why its pods die, if the cluster gives one."""


class ServiceSnapshot(NamedTuple):
    """An InferenceService: the model that its spec asks for, and those that it serves."""

    resource_version: str
    generation: int
    settled: bool
    """Revisions and traffic are already those of this generation."""
    desired: DesiredModel
    rest: str
    """A fingerprint of everything else that decides what is served."""
    newest: Revision | None
    rolled_out: Revision | None
    """The revision that has, or last had, all of the traffic."""
    traffic: Mapping[str, int]
    """Percent by URI."""
    mode: DeploymentMode
    unsupported: str = ""
    """The reason why this service cannot have a canary; empty if it can."""
    editor: str = ""
    """The program that last changed the spec."""
    uid: str = ""
    """The object's uid; empty without an InferenceService."""


class Window(NamedTuple):
    """Counts between a cursor and `until`, by the model version that answered."""

    until: float
    canary: Mapping[str, Count]
    """Counts by check, and always of `errors`, which counts every request. For `quality`: untied and lost pairs."""
    stable: Mapping[str, Count]


class Proof(NamedTuple):
    """The result of a release's lineage walk and verdict. It may be served if nothing is missing."""

    digest: str
    model: str
    missing: tuple[str, ...]


class RolloutSnapshot(NamedTuple):
    """A ModelRollout as it was read."""

    spec: RolloutSpec
    state: State
    resource_version: str


class Ledger(Protocol):
    """One ModelRollout. The controller that writes it at the expected version may act; every other reads again."""

    def read(self) -> RolloutSnapshot: ...

    def write(self, state: State, expected: str) -> None: ...


class Target(Protocol):
    """One InferenceService."""

    def read(self) -> ServiceSnapshot: ...

    def write(self, desired: DesiredModel, expected: str) -> None: ...


class Evidence(Protocol):
    """The source of measurements. It has a clock of its own: the end of a window is a time of that clock."""

    def since(self, canary: str, stable: str, after: float | None) -> Window | None:
        """Counts of both versions after a cursor; None without data.

        Without a cursor, or if the source's clock was set back before it, only the time to begin at.
        """
        ...


class ReleaseVerifier(Protocol):
    """Proves the origin of a release."""

    def prove(self, uri: str) -> Proof: ...


class Ports(NamedTuple):
    ledger: Ledger
    target: Target
    evidence: Evidence
    releases: ReleaseVerifier
    now: Callable[[], float]
    leads: Callable[[], bool]
    """True if this controller believes that it leads. It may be wrong: the ledger's version is the fence."""
