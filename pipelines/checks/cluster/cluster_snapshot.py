"""The state of a cluster, read before a run is submitted. Plain data."""

from collections.abc import Mapping
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


class StoreAnswer(NamedTuple):
    """The reason why an address of a store cannot be read."""

    state: Literal["absent", "refused", "silent"]
    """absent: no such object or bucket. refused: the key is refused. silent: no answer from here; the cluster may get
    one."""

    why: str


class ClusterSnapshot(NamedTuple):
    """The parts of a cluster's state that a graph needs; a part that could not be read is None."""

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

    claim_bytes: Mapping[str, float] = {}
    """Bytes of each volume claim: the capacity of its volume, or the requested bytes if it has no volume yet."""

    by_tag: frozenset[str] | None = None
    """Images that may be named by tag in a namespace that otherwise requires digests; None if it requires none."""

    cloud_identity: bool = False
    """True if the run's service account is a cloud's own identity, so that its pods reach S3 without a key."""

    pipeline_root: str | None = None
    """KFP's pipeline root. KFP's launcher has the key of this bucket only."""

    stores: Mapping[str, frozenset[str] | None] = {}
    """Keys with a value in each Secret of an S3 store, by the Secret's name; None if the Secret does not exist.
    Secrets that could not be read are left out."""

    answers: Mapping[str, StoreAnswer] = {}
    """Inputs and stores that were tried and cannot be read, by address."""

    gateway: str | None = None
    """Settings that the run's gateway was deployed with, as YAML; None if they are not known."""

    unread: tuple[str, ...] = ()
    """Parts that could not be read, each with its reason."""


class Platform(NamedTuple):
    """Facts about a cluster that do not depend on a run."""

    address: str
    version: str
    groups: Mapping[str, str]
    """Preferred version of each API group."""

    images: Mapping[str, str]
    """Image of each API group's controller, by group; left out if it could not be read."""

    storage_classes: tuple[str, ...]
    default_class: str
