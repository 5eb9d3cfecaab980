"""The overlays in a cluster: one at a time, and it stays until a test asks for another."""

from pathlib import Path

from tests.cluster.kubectl import Kubectl, filled_in, rendered, with_images
from tests.cluster.waiting import until
from tests.manifests.manifest_objects import Object


class Overlays:
    """The present installation. Files that share an overlay share its installation, and leave it as it was."""

    def __init__(self, kubectl: Kubectl, folder: Path) -> None:
        self.kubectl, self.manifests = kubectl, filled_in(folder)
        with_images(self.manifests)
        self.name = ""
        self.objects: list[Object] = []

    def use(self, name: str) -> Kubectl:
        """Install this one, unless it is installed."""
        if name != self.name:
            self.install(name)
        return self.kubectl

    def install(self, name: str) -> None:
        """Install an overlay on a cluster without any other."""
        self.clear()
        self.objects = rendered(self.manifests / "overlays" / name)
        volumes = [volume(manifest) for manifest in self.objects if manifest["kind"] == "PersistentVolumeClaim"]
        self.objects += volumes
        answer = self.kubectl.apply(self.objects)
        assert answer.code == 0, answer.text
        until(lambda: self.kubectl("get", "modelrollouts").code == 0, "rollouts are known")
        self.name = name

    def clear(self) -> None:
        """Namespaces first and policies last: what is refused while it goes is not made again."""
        spaces = [manifest for manifest in self.objects if manifest["kind"] == "Namespace"]
        rest = [
            manifest
            for manifest in self.objects
            if "namespace" not in manifest["metadata"] and manifest["kind"] != "Namespace"
        ]
        for space in spaces:
            self._end_pods(space["metadata"]["name"])
        for gone in (spaces, rest):
            if gone:
                self.kubectl.must("delete", "--ignore-not-found", "--wait", "-f", "-", manifests=gone)
        self.name, self.objects = "", []

    def _end_pods(self, namespace: str) -> None:
        """Before the namespace: one that has pods is looked at again only after half of their grace period."""
        # The janitor's CronJob starts one every quarter of an hour.
        self.kubectl.must("delete", "cronjobs,jobs,deployments", "--all", "-n", namespace, "--cascade=foreground")
        until(lambda: not self.kubectl.all("pods", namespace), f"the pods of {namespace} are gone")


def volume(claim: Object) -> Object:
    """A simulated node mounts anything; the scheduler and the quota want it bound."""
    name, namespace = claim["metadata"]["name"], claim["metadata"]["namespace"]
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"{namespace}-{name}"},
        "spec": {
            "capacity": claim["spec"]["resources"]["requests"],
            "accessModes": claim["spec"]["accessModes"],
            "claimRef": {"namespace": namespace, "name": name},
            "hostPath": {"path": "/nowhere"},
        },
    }
