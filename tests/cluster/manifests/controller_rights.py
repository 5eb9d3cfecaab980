"""The rights of controllers that the tests' cluster does not run, such as Argo's, so that tests can act as them."""

from collections.abc import Iterator
from contextlib import contextmanager

from tests.cluster.kubectl import Kubectl
from tests.manifests.manifest_objects import Object

ARGO = "kubeflow/argo"
RESOURCES = (
    "pods", "pods/exec", "pods/eviction", "services", "deployments", "statefulsets", "serviceaccounts/token",
    "configmaps", "secrets", "namespaces",
)  # fmt: skip
RBAC = "rbac.authorization.k8s.io"
ROLE: Object = {
    "apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": "test-controllers"},
    "rules": [{"apiGroups": ["", "apps"], "resources": RESOURCES,
               "verbs": ["get", "create", "update", "patch", "delete"]}],
}  # fmt: skip


@contextmanager
def controller_rights(kubectl: Kubectl, *accounts: str) -> Iterator[None]:
    """Let these make pods and the like in every namespace: service accounts by namespace/name, others by name."""
    subjects = [_subject(*account.split("/")) for account in accounts]
    binding: Object = {
        "apiVersion": f"{RBAC}/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "test-controllers"},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "test-controllers"}, "subjects": subjects,
    }  # fmt: skip
    kubectl.must("apply", "-f", "-", manifests=[ROLE, binding])
    yield
    kubectl.must("delete", "-f", "-", manifests=[ROLE, binding])


def _subject(*names: str) -> Object:
    if len(names) == 1:
        return {"kind": "User", "name": names[0], "apiGroup": RBAC}
    return {"kind": "ServiceAccount", "namespace": names[0], "name": names[1]}
