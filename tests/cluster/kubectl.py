"""kubectl as a person would use it, against the tests' cluster, as whoever is asked for.

What is read again and again, or only tried, goes to the API server without a kubectl: a hundredth of the work.
"""

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tests.cluster.api_server import ApiServer, api_server, impersonation
from tests.cluster.build.binaries import binary
from tests.cluster.waiting import until
from tests.manifests.manifest_objects import MANIFESTS, Object
from tests.screens.graph_yaml import LOADER

SECONDS = 300.0
TRIES = 5
MODIFIED = "please apply your changes to the latest version and try again"
VALUES = {
    "AWS_ACCESS_KEY_ID": "a-key", "AWS_SECRET_ACCESS_KEY": "a-secret", "AWS_ENDPOINT_URL_S3": "http://10.96.0.20:9000",
    "QINGLAN_SHADOW_TOKEN": "0123456789abcdef" * 4,
    "OPENAI_API_KEY": "a-paid-key", "DEEPSEEK_API_KEY": "another-paid-key",
}  # fmt: skip


class Output(NamedTuple):
    code: int
    text: str


class Kubectl(NamedTuple):
    kubeconfig: Path

    def __call__(self, *arguments: str, manifests: Sequence[Object] = (), account: str = "") -> Output:
        """Run it; `account` is namespace/name of a service account to act as."""
        command = [str(binary("kubectl")), "--kubeconfig", str(self.kubeconfig), *_acting(account), *arguments]
        text = "\n---\n".join(json.dumps(manifest) for manifest in manifests) or None
        done = subprocess.run(command, input=text, text=True, capture_output=True, timeout=SECONDS)
        return Output(done.returncode, done.stdout if done.returncode == 0 else done.stderr + done.stdout)

    def must(self, *arguments: str, manifests: Sequence[Object] = (), account: str = "") -> str:
        answer = self(*arguments, manifests=manifests, account=account)
        assert answer.code == 0, answer.text
        return answer.text

    def apply(self, manifests: Sequence[Object], *options: str, account: str = "") -> Output:
        """Again, as a person would, where a controller wrote to one of them at that moment."""
        words = ["apply", "--server-side", "--force-conflicts", *options, "-f", "-"]
        answer = self(*words, manifests=manifests, account=account)
        for _ in range(TRIES - 1):
            if MODIFIED in answer.text:
                answer = self(*words, manifests=manifests, account=account)
        return answer

    @property
    def server(self) -> ApiServer:
        return api_server(self.kubeconfig)

    def exists(self, kind: str, name: str, namespace: str = "") -> bool:
        return self.server.get(kind, name, namespace).status != 404

    def get(self, kind: str, name: str, namespace: str = "") -> Any:
        answer = self.server.get(kind, name, namespace)
        assert answer.refusal == ""
        return answer.body

    def all(self, kind: str, namespace: str = "", labels: str = "") -> list[Any]:
        """List objects, of every namespace if none is named."""
        answer = self.server.get(kind, namespace=namespace, labels=labels)
        assert answer.refusal == ""
        result: list[Any] = answer.body["items"]
        return result

    def a_pod(self, namespace: str, labels: str) -> str:
        """Name of the first pod with these labels, awaited: a controller may be about to make it."""
        pods: list[Any] = []

        def exists() -> bool:
            pods[:] = self.all("pods", namespace, labels)
            return bool(pods)

        until(exists, f"a pod with {labels}")
        name: str = pods[0]["metadata"]["name"]
        return name

    def delete_all(self, kind: str, namespace: str) -> None:
        """And wait until they are gone."""
        refusal = self.server.request("DELETE", self.server.resource(kind).path(namespace)).refusal
        assert refusal == ""
        until(lambda: not self.all(kind, namespace), f"every {kind} of {namespace} is gone")

    def try_to_create(self, manifest: Object, account: str = "") -> str:
        """The API server's refusal; empty if it would create it."""
        return self.server.create(manifest, account, dryRun="All").refusal

    def try_to_patch(
        self, kind: str, name: str, namespace: str, change: Object, account: str = "", subresource: str = "",
        how: str = "merge",
    ) -> str:  # fmt: skip
        """The API server's refusal; empty if it would change it so."""
        path = self.server.resource(kind).path(namespace, name, subresource)
        return self.server.patch(path, change, account, how, dryRun="All").refusal


def _acting(account: str) -> list[str]:
    options = {"Impersonate-User": "--as", "Impersonate-Group": "--as-group"}
    return [f"{options[header]}={value}" for header, value in impersonation(account)]


def filled_in(folder: Path) -> Path:
    """A copy of the manifests, with keys where a person would write them."""
    copy = folder / "manifests"
    shutil.copytree(MANIFESTS, copy)
    for example in copy.rglob("*.env.example"):
        lines = [_filled(line) for line in example.read_text().splitlines() if "=" in line or line.startswith("#")]
        example.with_suffix("").write_text("\n".join(lines) + "\n")
    return copy


def _filled(line: str) -> str:
    name, equals, value = line.partition("=")
    return f"{name}={value or VALUES[name]}" if equals and not name.startswith("#") else line


def with_images(manifests: Path, names: Sequence[str] = ("cpu", "serve", "style")) -> None:
    """Write image digests as `make images` does."""
    images = [{"name": f"qinglan/{name}", "digest": f"sha256:{name.encode().hex():0>64}"} for name in names]
    file = manifests / "overlays/release/images/kustomization.yaml"
    file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | {"images": images}))


def rendered(folder: Path) -> list[Object]:
    """Return the objects that `kubectl apply -k` would send."""
    answer = kustomized(folder)
    assert answer.code == 0, answer.text
    return [document for document in yaml.load_all(answer.text, Loader=LOADER) if document]


def kustomized(folder: Path) -> Output:
    done = subprocess.run([str(binary("kubectl")), "kustomize", str(folder)], text=True, capture_output=True)
    return Output(done.returncode, done.stdout if done.returncode == 0 else done.stderr)
