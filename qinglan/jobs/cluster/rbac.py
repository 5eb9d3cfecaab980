"""The rights that the ServiceAccount of a step that launches jobs needs in its namespace."""

from typing import NamedTuple


class Permission(NamedTuple):
    group: str
    resource: str
    """A resource, or a subresource such as pods/log."""

    verbs: tuple[str, ...]
    name: str = ""
    """The only object; "" means every object of this resource."""

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
