"""A job's place on the cluster, in plain values that the launching step fills in."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class LaunchContext(NamedTuple):
    namespace: str
    run: str
    """The run's id: with the step it names the job."""

    image: str
    """The launching step's own: what is trained with is what was looked at."""

    tenant: str
    """The tenant whose label the job's pods get; empty for a run without one."""

    task: Mapping[str, Any] = {}
    """Resources, tolerations, volumes and more that the launching task hands on: the fields of dsl.TaskConfig."""

    owner: Mapping[str, Any] | None = None
    """The run's Workflow, or the launching pod; when it is deleted, the job goes along."""

    user: int | None = None
    """The number of the user that the pods run as; None: as the image says."""

    group: int | None = None
    pull_secrets: Sequence[Mapping[str, str]] = ()
    annotations: Mapping[str, str] = {}
    """Annotations of the job's pods."""
