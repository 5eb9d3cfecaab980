"""What the ServiceAccount of a step that launches jobs must be allowed in its namespace, and nothing more."""

from typing import NamedTuple


class Right(NamedTuple):
    group: str
    resource: str
    """With its subresource: pods/log."""

    verbs: tuple[str, ...]

    @property
    def rule(self) -> dict[str, list[str]]:
        """As a Role has it."""
        return {"apiGroups": [self.group], "resources": [self.resource], "verbs": list(self.verbs)}


LAUNCHING = (
    Right("kubeflow.org", "pytorchjobs", ("get", "list", "watch", "create", "delete")),
    Right("", "pods", ("get", "list", "watch")),
    Right("", "pods/log", ("get",)),
    Right("", "events", ("list", "watch")),
)
