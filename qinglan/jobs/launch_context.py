"""Where a job goes, in plain values: the step that launches it fills them in."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class LaunchContext(NamedTuple):
    namespace: str
    run: str
    """The run's id: with the step it names the job."""

    image: str
    """The launching step's own: what is trained with is what was looked at."""

    tenant: str = ""
    task: Mapping[str, Any] = {}
    """What KFP hands on from the task: the fields of dsl.TaskConfig."""

    owner: Mapping[str, Any] | None = None
    """Whose deletion takes the job along: the run's Workflow, or the pod that launches."""

    user: int | None = None
    """The number of the user that the pods run as; None: as the image says."""

    group: int | None = None
    pull_secrets: Sequence[Mapping[str, str]] = ()
    annotations: Mapping[str, str] = {}
    """Of the pods."""
