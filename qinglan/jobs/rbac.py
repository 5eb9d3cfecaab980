"""The rights that the ServiceAccount of a step that launches jobs needs in its namespace."""

from typing import NamedTuple


class Permission(NamedTuple):
    group: str
    resource: str
    """With its subresource: pods/log."""

    verbs: tuple[str, ...]

    @property
    def rule(self) -> dict[str, list[str]]:
        """As a Role has it."""
        return {"apiGroups": [self.group], "resources": [self.resource], "verbs": list(self.verbs)}


LAUNCHER_PERMISSIONS = (
    Permission("kubeflow.org", "pytorchjobs", ("get", "list", "watch", "create", "delete")),
    Permission("", "pods", ("get", "list", "watch")),
    Permission("", "pods/log", ("get",)),
    Permission("", "events", ("list", "watch")),
)
