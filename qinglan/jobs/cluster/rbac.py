"""Permissions that a step needs in its namespace to launch jobs; its ServiceAccount gets them from a Role."""

from typing import NamedTuple


class Permission(NamedTuple):
    group: str
    resource: str
    """Resource, or subresource such as pods/log."""

    verbs: tuple[str, ...]
    name: str = ""
    """Name of the only object that the permission covers; "" means every object of the resource."""

    @property
    def rule(self) -> dict[str, list[str]]:
        """The permission as a rule of a Role."""
        names = {"resourceNames": [self.name]} if self.name else {}
        return {"apiGroups": [self.group], "resources": [self.resource], **names, "verbs": list(self.verbs)}

    def __str__(self) -> str:
        return f"{', '.join(self.verbs)} {self.resource} {self.name}".strip()


LAUNCHER_PERMISSIONS = (
    Permission("kubeflow.org", "pytorchjobs", ("get", "list", "watch", "create", "delete")),
    Permission("", "pods", ("get", "list", "watch")),
    Permission("", "pods/log", ("get",)),
    Permission("", "events", ("list", "watch")),
)
