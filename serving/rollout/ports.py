"""What the rollout reads and writes, as plain data; adapters speak Kubernetes and Prometheus.

Every port raises OutageError where it got no answer (the write may have happened), and the two that write raise
Conflict where the object is no longer at the version expected of it.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple, Protocol

from serving.rollout.sequential import Count
from serving.rollout.spec import RolloutSpec
from serving.rollout.state import DesiredModel, State

DeploymentMode = Literal["Serverless", "Standard"]


class Revision(NamedTuple):
    """One generation of a model's pods. `ready` is read from revisions or ReplicaSets, not from Ready."""

    name: str
    uri: str
    ready: bool
    failed: str = ""
    """Why its pods die, where the cluster says so."""


class ServiceSnapshot(NamedTuple):
    """What an InferenceService asks for, and what it really does."""

    resource_version: str
    generation: int
    settled: bool
    """What follows speaks of this generation."""
    desired: DesiredModel
    rest: str
    """A fingerprint of whatever else decides what is served."""
    newest: Revision | None
    rolled_out: Revision | None
    """What has, or last had, all of the traffic."""
    traffic: Mapping[str, int]
    """Percent by URI."""
    mode: DeploymentMode
    unsupported: str = ""
    """Why a canary would not do what it says here; empty where it would."""
    editor: str = ""
    """Who last changed what is asked for."""
    uid: str = ""
    """Which object of this name it is; none where there is no InferenceService."""


class Window(NamedTuple):
    """What was counted between a cursor and `until`, by the model version that answered."""

    until: float
    canary: Mapping[str, Count]
    """By check; `errors` is always there, since it counts every request. For `quality`: shadow pairs won or lost,
    and lost."""
    stable: Mapping[str, Count]


class Proof(NamedTuple):
    """What the lineage walk and the verdict say of a release: nothing missing means that it may be served."""

    digest: str
    model: str
    missing: tuple[str, ...]


class RolloutSnapshot(NamedTuple):
    """A ModelRollout as it was read."""

    spec: RolloutSpec
    state: State
    resource_version: str


class Ledger(Protocol):
    """One ModelRollout. Whoever writes it at the expected version may act; everybody else reads again."""

    def read(self) -> RolloutSnapshot: ...

    def write(self, state: State, expected: str) -> None: ...


class Target(Protocol):
    """One InferenceService."""

    def read(self) -> ServiceSnapshot: ...

    def write(self, desired: DesiredModel, expected: str) -> None: ...


class Evidence(Protocol):
    """What measures. Its clock is its own: a window ends where its answer says."""

    def since(self, canary: str, stable: str, after: float | None) -> Window | None:
        """Counts of both versions after a cursor; without one, only where to begin; None where there is no data."""
        ...


class ReleaseVerifier(Protocol):
    """What knows where a release came from."""

    def prove(self, uri: str) -> Proof: ...


class Clock(Protocol):
    def now(self) -> float: ...


class Lease(Protocol):
    def held(self) -> bool:
        """Whether this controller believes that it leads. It may be wrong: the ledger's version is the fence."""
        ...


class Ports(NamedTuple):
    ledger: Ledger
    target: Target
    evidence: Evidence
    releases: ReleaseVerifier
    clock: Clock
    lease: Lease
