"""Cluster settings of a job, such as namespace and image, which the launching step fills in."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class LaunchContext(NamedTuple):
    namespace: str
    run: str
    """Id of the run. The job's name is made from the run's id and the step's name."""

    image: str
    """Image of the job, the same as that of the launching step, so that both run the same code."""

    tenant: str
    """Tenant for a label of the job and its pods; empty for a run without a tenant."""

    task: Mapping[str, Any] = {}
    """Fields of dsl.TaskConfig that the launching task passes to the job, such as resources and volumes."""

    owner: Mapping[str, Any] | None = None
    """Owner of the job: the run's Workflow or the launching pod. The job is deleted together with its owner."""

    user: int | None = None
    """Numeric user id of the pods; None uses the image's user."""

    group: int | None = None
    pull_secrets: Sequence[Mapping[str, str]] = ()
    annotations: Mapping[str, str] = {}
    """Annotations of the job's pods."""
