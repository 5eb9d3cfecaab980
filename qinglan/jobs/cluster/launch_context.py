"""A job's place on the cluster, in plain values that the launching step fills in."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class LaunchContext(NamedTuple):
    namespace: str
    run: str
    """The run's id: with the step it names the job."""

    image: str
    """Image of the launching step, so that the job runs the code that was checked."""

    tenant: str
    """The tenant whose label the job's pods get; empty for a run without one."""

    task: Mapping[str, Any] = {}
    """Resources, tolerations, volumes and more that the launching task hands on: the fields of dsl.TaskConfig."""

    owner: Mapping[str, Any] | None = None
    """The run's Workflow, or the launching pod; the job is deleted with it."""

    user: int | None = None
    """Numeric user id of the pods; None takes the image's."""

    group: int | None = None
    pull_secrets: Sequence[Mapping[str, str]] = ()
    annotations: Mapping[str, str] = {}
    """Annotations of the job's pods."""
