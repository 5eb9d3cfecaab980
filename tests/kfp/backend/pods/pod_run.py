"""One pod from its scheduling to its end: its volumes, its containers in turn, and its status at the API server."""

import shutil
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from subprocess import Popen
from typing import Any, TypeVar

from kubernetes import client

from tests.kfp.backend.pods import container as containers
from tests.kfp.backend.pods import pod_spec
from tests.kfp.backend.pods.pod_spec import EXECUTORS, MissingReference, Object
from tests.kfp.backend.pods.pod_status import ContainerState, exit_code, pod_status

TOOLS = {"driver": "driver", "launcher": "launcher-v2", "argoexec": "argoexec"}
"""Programs of the images of KFP and Argo, and their names there."""

RETRY_SECONDS, LOOK_SECONDS, GRACE_SECONDS = 2.0, 0.05, 30.0
Answer = TypeVar("Answer")


class ApiLookup:
    """Answers of the API server that a pod needs, from its own namespace."""

    def __init__(self, api: Any, pod: Object) -> None:
        self.api, self.pod = api, pod
        self.namespace: str = pod["metadata"]["namespace"]

    def data(self, kind: str, name: str) -> Mapping[str, bytes] | None:
        read = self.api.read_namespaced_secret if kind == "secret" else self.api.read_namespaced_config_map
        try:
            return pod_spec.decoded(kind, read(name, self.namespace).data)
        except client.ApiException as error:
            if error.status == 404:
                return None
            raise

    def token(self, audience: str, seconds: int) -> bytes:
        metadata = self.pod["metadata"]
        spec = {
            "expirationSeconds": seconds, "audiences": [audience] if audience else [],
            "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": metadata["name"], "uid": metadata["uid"]},
        }  # fmt: skip
        account = self.pod["spec"]["serviceAccountName"]
        answer = self.api.create_namespaced_service_account_token(account, self.namespace, {"spec": spec})
        token: str = answer.status.token
        return token.encode()

    def claim_folder(self, name: str) -> Path:
        """The folder of a claim's volume: the controller manager makes volumes of this machine's folders."""
        claim = self.api.read_namespaced_persistent_volume_claim(name, self.namespace)
        if not claim.spec.volume_name:
            raise MissingReference(f"persistentVolumeClaim {name!r} has no volume yet")
        return Path(self.api.read_persistent_volume(claim.spec.volume_name).spec.host_path.path)


class PodRun:
    """Runs in a thread of its own, which lives as long as the containers."""

    def __init__(self, api: Any, pod: Object, home: Path, tools: Path, path: str) -> None:
        self.api, self.pod, self.home, self.tools, self.path = api, pod, home, tools, path
        self.lookup = ApiLookup(api, pod)
        self.name: str = pod["metadata"]["name"]
        self.began = _now()
        self.processes: dict[str, Popen[bytes]] = {}
        self.states: dict[str, ContainerState] = {}
        self.stopped = False
        self.canceled: float | None = None

    def run(self) -> str:
        """Run it to its end; the phase that it ended in. Volumes go with it, claims stay."""
        try:
            return self.run_containers()
        finally:
            self.stop()
            shutil.rmtree(self.home / "volumes", ignore_errors=True)

    def run_containers(self) -> str:
        initial, main = self.pod["spec"].get("initContainers") or [], self.pod["spec"]["containers"]
        self.states = {it["name"]: ContainerState(it["name"], it["image"]) for it in (*initial, *main)}
        volumes = {it["name"]: self.volume(it) for it in self.pod["spec"].get("volumes") or ()}
        for each in initial:
            self.start(each, volumes)
            self.wait([each["name"]])
            if self.states[each["name"]].code:
                return self.report()
        for each in main:
            self.start(each, volumes)
        self.wait([each["name"] for each in main])
        return self.report()

    def stop(self) -> None:
        """End every container, as a kubelet does when the pod is deleted."""
        self.stopped = True
        for process in list(self.processes.values()):
            containers.kill(process)

    def cancel(self) -> None:
        """Ask the step to end, and end the pod where it does not: Argo's `wait` saves what there is in between."""
        if self.canceled is None:
            self.canceled = time.monotonic()
            if process := self.processes.get("main"):
                containers.terminate(process)
        elif time.monotonic() - self.canceled > GRACE_SECONDS:
            self.stop()

    def wait(self, names: list[str]) -> None:
        """Follow these containers to their end, with a report whenever one ends."""
        while running := [name for name in names if self.states[name].code is None]:
            for name in running:
                returncode = self.processes[name].poll()
                if returncode is not None:
                    ended = self.states[name]._replace(code=exit_code(returncode), ended=_now())
                    self.states[name] = ended
                    containers.clear(self.home / "containers" / name)
                    self.report()
            time.sleep(LOOK_SECONDS)

    def volume(self, volume: Object) -> Path:
        """The folder of a volume; it waits, as a kubelet would, for what is missing."""
        if "hostPath" in volume:
            raise ValueError(f"volume {volume['name']}: hostPath is not allowed")
        if "persistentVolumeClaim" in volume:
            claim: str = volume["persistentVolumeClaim"]["claimName"]
            path: Path = self.patiently(next(iter(self.states)), lambda: self.lookup.claim_folder(claim))
            return path
        folder: Path = self.home / "volumes" / volume["name"]
        folder.mkdir(parents=True)
        files = self.patiently(
            next(iter(self.states)), lambda: pod_spec.volume_files(self.pod, volume, self.lookup)
        )  # fmt: skip
        for name, content in (files or {}).items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
        return folder

    def start(self, spec: Object, volumes: Mapping[str, Path]) -> None:
        name = spec["name"]
        process = self.patiently(name, lambda: self.process(spec, volumes))
        self.processes[name] = containers.start(self.home / "containers" / name, process)
        self.states[name] = self.states[name]._replace(started=_now())
        self.report()

    def process(self, spec: Object, volumes: Mapping[str, Path]) -> containers.Process:
        host, _, port = self.api.api_client.configuration.host.removeprefix("https://").partition(":")
        path = pod_spec.PATH if spec["name"] in EXECUTORS else f"{self.path}:{pod_spec.PATH}"
        known = {
            "PATH": path, "HOME": "/root", "HOSTNAME": self.name,
            "KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port,
        }  # fmt: skip
        environment = pod_spec.environment(self.pod, spec, self.lookup, known)
        services = self.api.api_client.sanitize_for_serialization(self.api.list_service_for_all_namespaces().items)
        hosts = pod_spec.service_hosts(services, self.lookup.namespace, self.name)
        mounts = [(self.tools / program, f"/usr/local/bin/{name}") for program, name in TOOLS.items()]
        for mount in pod_spec.mounts(spec):
            source = volumes[mount.volume] / mount.sub_path
            if not source.exists():
                source.mkdir(parents=True)
            mounts.append((source, mount.target))
        command = pod_spec.command_line(spec, environment)
        return containers.Process(command, environment, spec.get("workingDir") or "/", hosts, mounts)

    def patiently(self, name: str, attempt: Callable[[], Answer]) -> Answer:
        """Try again while something is missing, and say so in the status of this container."""
        while True:
            try:
                return attempt()
            except MissingReference as error:
                if self.stopped:
                    raise
                state = self.states[name]._replace(waiting="CreateContainerConfigError", message=str(error))
                self.states[name] = state
                self.report()
                time.sleep(RETRY_SECONDS)

    def report(self) -> str:
        initial = [self.states[it["name"]] for it in self.pod["spec"].get("initContainers") or ()]
        main = [self.states[it["name"]] for it in self.pod["spec"]["containers"]]
        status = pod_status(self.pod["metadata"]["uid"], self.began, initial, main)
        self.api.patch_namespaced_pod_status(self.name, self.lookup.namespace, {"status": status})
        phase: str = status["phase"]
        return phase


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
