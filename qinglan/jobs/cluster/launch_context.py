"""Cluster settings of a job, such as namespace and image, which the launching step fills in."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class LaunchContext(NamedTuple):
    namespace: str
    run: str
    """Id of the run. The job's name is made from the run's id and the step's name."""

    image: str
    """Image of the launching step, so that the job runs the code that was checked."""

    tenant: str
    """Tenant for the label of the job's pods; empty for a run without a tenant."""

    task: Mapping[str, Any] = {}
    """Fields of dsl.TaskConfig that the launching task passes to the job, such as resources and volumes."""

    owner: Mapping[str, Any] | None = None
    """The run's Workflow, or the launching pod; the job is deleted with it."""

    user: int | None = None
    """Numeric user id of the pods; None uses the image's user."""

    group: int | None = None
    pull_secrets: Sequence[Mapping[str, str]] = ()
    annotations: Mapping[str, str] = {}
    """Annotations of the job's pods."""
