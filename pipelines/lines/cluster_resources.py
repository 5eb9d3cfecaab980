"""The resources of a line's steps on a cluster: a pod for each step, GPUs for trainings, a volume with
checkpoints."""

from collections.abc import Mapping
from typing import NamedTuple

from pydantic import Field

from qinglan.config import Config, Name, Positive


class Pod(Config):
    """Resources of one stage's pod, both as requests and as limits, because quotas count both. If a training has
    several nodes, each node has these resources."""

    cpu: Positive = 2
    """Number of cores."""

    memory: Positive = 8
    """GiB of memory."""

    hours: Positive = 24
    """Time limit of the stage in hours, including the time that it waits for the gateway."""


class ClusterConfig(Config):
    """A profile's resources on a cluster; ignored by local runs."""

    pods: dict[str, Pod] = {}
    """Pod settings by stage; an unnamed stage gets the cluster's default pod."""

    gpu_nodes: dict[str, str] = Field(
        default={"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}, validate_default=True, min_length=1
    )
    """Labels of the nodes that have the GPUs."""

    network: float = Field(default=100.0, gt=0)
    """Bandwidth between two nodes in Gbit/s, from which `qinglan fit` estimates the hours of a training on several
    nodes. NCCL's `all_gather_perf` measures it; clouds give nodes with A100s 100 Gbit/s or more."""

    scratch: Name = "qinglan-scratch"
    """Volume claim (ReadWriteMany) for checkpoints and files that a job's nodes share. Only GPU profiles mount it."""

    base_weights: str = Field(default="", pattern=r"^([a-z0-9][a-z0-9-]{0,62})?$")
    """Volume claim with base models by their public names, for clusters whose pods cannot reach the hub. Trainings
    also read base models there, so that none is copied through a bucket."""

    immutable_inputs: bool = False
    """True if the bytes at an input's address never change, so that KFP's cache may answer for steps that read it.
    Otherwise each run imports its inputs anew, and KFP's cache answers for no step."""


class Machine(NamedTuple):
    """The resources of one stage."""

    pod: Pod
    gpus: int = 0
    """GPUs of one node."""

    gpu_nodes: Mapping[str, str] = {}
    scratch: str = ""
    base_weights: str = ""


class Cluster(NamedTuple):
    """The cluster that a graph runs on; empty for this machine."""

    machines: Mapping[str, Machine] = {}
    """The machine of each stage."""

    images: Mapping[str, str] = {}
    """Replacement of each image, by the image's name without tag, such as qinglan/cpu. In a release, it is the image
    by digest."""

    immutable_inputs: bool = False
    """The profile's setting `cluster.immutable_inputs`."""

    tenant: str = ""
    """The tenant that owns the pods; empty for none."""

    pythons: Mapping[str, str] = {}
    """The interpreter of each stage that runs in its own environment on this machine."""


LOCAL_CLUSTER = Cluster()


def without_tag(image: str) -> str:
    """Strip tag and digest from an image's name: qinglan/cpu for qinglan/cpu:0.1.0. A registry's port is no tag."""
    head, slash, tail = image.partition("@")[0].rpartition("/")
    return f"{head}{slash}{tail.partition(':')[0]}"


def resolve_image(image: str, images: Mapping[str, str]) -> str:
    return images.get(without_tag(image), image)
