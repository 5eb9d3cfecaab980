"""A cluster as it was read before a run is submitted, and the findings about it: plain data."""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from qinglan.jobs.cluster.rbac import Permission


class Node(NamedTuple):
    name: str
    labels: Mapping[str, str]
    allocatable: Mapping[str, float]
    """Amounts by resource: cores, bytes, accelerators."""


class Quota(NamedTuple):
    name: str
    resource: str
    hard: float
    used: float


class StoreSecret(NamedTuple):
    """The Secret of an S3 store without its values, except the addresses."""

    keys: frozenset[str]
    """Keys that are not empty."""

    fetch_endpoint: str
    """The store's address for KFP's launcher; "" means AWS."""

    store_endpoint: str
    """The same store's address for our own steps."""


class StoreAnswer(NamedTuple):
    """The reason why an address of a store cannot be read."""

    state: Literal["absent", "refused", "silent"]
    """absent: no such object or bucket. refused: the key is refused. silent: no answer here, maybe one in the
    cluster."""

    why: str


class ClusterSnapshot(NamedTuple):
    """The state of a cluster as far as a graph needs it; None for what could not be read."""

    namespace: str
    objects: Mapping[tuple[str, str], frozenset[str] | None]
    """Keys of each object, by kind and name; None if it does not exist. Unread objects are left out."""

    nodes: tuple[Node, ...] | None = ()
    quotas: tuple[Quota, ...] | None = ()
    job_kinds: frozenset[str] | None = frozenset()
    """The kinds of kubeflow.org that the API server knows, such as pytorchjobs."""

    denied: tuple[Permission, ...] = ()
    """Permissions for launching PyTorchJobs that the run's service account lacks."""

    kfp_denied: tuple[Permission, ...] = ()
    """Permissions for KFP's own pods that the run's service account lacks."""

    rollout_kinds: frozenset[str] | None = frozenset()
    """The kinds of qinglan.dev that the API server knows: modelrollouts."""

    rollout_denied: Mapping[str, tuple[Permission, ...]] = {}
    """Permissions for deploying that the run's service account lacks, by namespace."""

    absent_namespaces: frozenset[str] = frozenset()
    """Namespaces for rollouts that the cluster does not have."""

    guarded: bool | None = None
    """True if the namespace was made by our manifests; None if it could not be read."""

    unbound: frozenset[str] = frozenset()
    """Volume claims that have no volume yet: some get one with their first pod, some never."""

    claim_bytes: Mapping[str, float] = {}
    """Bytes of each volume claim: of its volume, or as requested where it has none yet."""

    by_tag: frozenset[str] | None = None
    """Images admitted by tag where others must be named by digest; None: every image is admitted."""

    without_token: frozenset[str] = frozenset()
    """Service accounts that mount no token into their pods."""

    cloud_identity: bool = False
    """The run's service account is a cloud's own identity, so that its pods reach S3 without a key."""

    pipeline_root: str | None = None
    """KFP's pipeline root: the launcher has the key of this bucket only."""

    root_without_address: bool = False
    """KFP's settings give no address of this bucket, so AWS's client takes the one in the step's environment."""

    stores: Mapping[str, StoreSecret | None] = {}
    """Secrets that steps fetch their inputs with, by name; None if it does not exist. Unread ones are left out."""

    answers: Mapping[str, StoreAnswer] = {}
    """Inputs and stores that were tried and cannot be read, by address."""

    gateway: str | None = None
    """The settings that the run's gateway was deployed with, as YAML; None where they are not known."""

    unread: tuple[str, ...] = ()
    """Parts that could not be read, each with its reason."""


class Platform(NamedTuple):
    """Facts about a cluster that do not depend on a run."""

    address: str
    version: str
    groups: Mapping[str, str]
    """Preferred version of each group of kinds."""

    images: Mapping[str, str]
    """Image of the controller that serves a group, where it could be read."""

    storage_classes: tuple[str, ...]
    default_class: str


class Finding(NamedTuple):
    weight: Literal["missing", "warning", "unchecked"]
    what: str
    next_step: str = ""
    command: str = ""
    """A shell command that can be run as it is; `...` stands for a value that only a person knows."""

    @property
    def lines(self) -> tuple[str, ...]:
        """The finding with its next step, and the command on a line of its own."""
        command = self.command and f"      {self.command}"
        return tuple(filter(None, (f"{self.what} {self.next_step}".strip(), command)))

    def __str__(self) -> str:
        return " ".join(self.lines)


def join_names(names: Sequence[str], at_most: int = 12) -> str:
    """The names in a sentence; many of them are counted."""
    if len(names) > at_most:
        names = (*names[: at_most - 1], f"{len(names) - at_most + 1} more")
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else str(last)
