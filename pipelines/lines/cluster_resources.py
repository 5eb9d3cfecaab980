"""The resources of a line's steps on a cluster: a pod each, GPUs for trainings, a volume with checkpoints."""

from collections.abc import Mapping
from typing import NamedTuple

from pydantic import Field

from qinglan.config import Config, Name, Positive


class Pod(Config):
    """Requests and limits of one stage's pod: quotas count both. Of one node, if a training has several."""

    cpu: Positive = 2
    """Cores."""

    memory: Positive = 8
    """GiB."""

    hours: Positive = 24
    """Hours that the stage may take at most, with its waits for the gateway."""


class ClusterConfig(Config):
    """A profile's resources on a cluster; ignored by local runs."""

    pods: dict[str, Pod] = {}
    """Pod settings by stage; an unnamed stage gets the cluster's default pod."""

    gpu_nodes: dict[str, str] = Field(
        default={"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}, validate_default=True, min_length=1
    )
    """Labels of the nodes that have the GPUs."""

    network: float = Field(default=100.0, gt=0)
    """Bandwidth between two nodes in Gbit/s, by which `fit` estimates the hours of a training on several. NCCL's
    `all_gather_perf` measures it; clouds give a node of A100s 100 or more."""

    scratch: Name = "qinglan-scratch"
    """Volume claim (ReadWriteMany) for checkpoints and files that a job's nodes share. Only GPU profiles mount it."""

    base_weights: str = Field(default="", pattern=r"^([a-z0-9][a-z0-9-]{0,62})?$")
    """Volume claim with base models by their public names, for clusters whose pods cannot reach the hub. Training
    reads them there too, so that no base goes through a bucket."""

    immutable_inputs: bool = False
    """True if the address of an input always has the same bytes, so that KFP's cache may answer for it. Otherwise
    each run imports its inputs anew, and KFP's cache answers for no step."""


class Machine(NamedTuple):
    """The resources of one stage."""

    pod: Pod
    gpus: int = 0
    """GPUs of one node."""

    gpu_nodes: Mapping[str, str] = {}
    scratch: str = ""
    base_weights: str = ""


class Cluster(NamedTuple):
    """The cluster that a graph runs on. Empty: this machine."""

    machines: Mapping[str, Machine] = {}
    """The machine of each stage."""

    images: Mapping[str, str] = {}
    """An image's name without tag, such as qinglan/cpu, and what stands in its place: in a release, its digest."""

    immutable_inputs: bool = False
    """The profile's setting of this name."""

    tenant: str = ""
    """The tenant that owns the pods; empty for none."""

    pythons: Mapping[str, str] = {}
    """The interpreter of each stage that runs in its own environment on this machine."""


LOCAL_CLUSTER = Cluster()


def without_tag(image: str) -> str:
    """qinglan/cpu of qinglan/cpu:0.1.0; a registry's port is no tag."""
    head, slash, tail = image.partition("@")[0].rpartition("/")
    return f"{head}{slash}{tail.partition(':')[0]}"


def resolve_image(image: str, images: Mapping[str, str]) -> str:
    """The image that stands in this one's place."""
    return images.get(without_tag(image), image)
