"""Shared parts of the rollout controller's tests: real releases in a real S3, a real KServe with Knative, a real
Prometheus, and model servers that are numbers: they count what the traffic of the moment would make them count.
"""

import json
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from minio import Minio as Client

from qinglan.files.digests import digest
from qinglan.kubernetes.client import Api
from qinglan.kubernetes.informer import Informer
from qinglan.kubernetes.model_rollouts import rollout_object
from qinglan.lineage.release.release_address import ReleaseAddress
from qinglan.lineage.signing.trust import TRUST_FILE
from qinglan.lineage.trace.release_folder import MODEL, read_release
from qinglan.processes.services import end_with_parent
from qinglan.store import open_store
from serving.rollout.cluster.first_inference_service import first_inference_service
from serving.rollout.cluster.inference_service import ServiceObjects
from serving.rollout.cluster.target import service_snapshot
from serving.rollout.ports import ServiceSnapshot
from tests.cluster.kubectl import Kubectl
from tests.cluster.rollout.prometheus import Pod, Server
from tests.cluster.servers import Minio, stop
from tests.cluster.waiting import until
from tests.manifests.manifest_objects import Object
from tests.releases.registered_release import NAME, SignedRelease, use_keys
from tests.releases.whole_release import make_whole_release

NS = "qinglan"
ACCOUNT = "qinglan-rollout"
SERVICE = "rewriter"
SOURCE = "internal.serving.kserve.io/storage-initializer-sourceuri"
PER_SECOND = 400.0
LOOK_SECONDS = 0.3
POLICY: Mapping[str, Any] = {
    "steps": [20, 50, 100], "stepSeconds": 5, "minimumSample": 50, "deadlineSeconds": 600, "mode": "Serverless",
    "checks": [{"name": "errors", "margin": 0.05}],
}  # fmt: skip
PREDICTOR = {"runtime": "qinglan-rewriter-cpu", "format": "qinglan-rewriter", "minReplicas": 1, "maxReplicas": 1}


class Model(NamedTuple):
    """A release that is in the store."""

    signed: SignedRelease
    uri: str
    model: str

    @property
    def version(self) -> str:
        return self.model[:12]

    @property
    def release(self) -> Object:
        return {"name": NAME, "digest": self.signed.registered.release, "uri": self.uri, "model": self.model}


class House(NamedTuple):
    kubectl: Kubectl
    cluster: Any
    s3: Minio
    folder: Path
    prometheus: Server
    models: tuple[Model, ...]
    api: Api
    pods: dict[str, Pod]
    """By URI, for all tests: Prometheus takes seconds to find new ones."""

    @property
    def kubeconfig(self) -> Path:
        """Return a client with the controller's own account and its rights by manifests/base/accounts.yaml."""
        return login(self.cluster, ACCOUNT, self.folder / "kubeconfig")


def login(cluster: Any, account: str, path: Path) -> Path:
    """A kubeconfig of an account in our namespace, by a token that the API server makes for it."""
    settings = cluster.account(NS, account).configuration
    token = settings.api_key["authorization"].removeprefix("Bearer ")
    where = {"server": settings.host, "certificate-authority": settings.ssl_ca_cert}
    kubeconfig = {
        "apiVersion": "v1", "kind": "Config", "current-context": "one",
        "clusters": [{"name": "one", "cluster": where}],
        "users": [{"name": "one", "user": {"token": token}}],
        "contexts": [{"name": "one", "context": {"cluster": "one", "user": "one", "namespace": NS}}],
    }  # fmt: skip
    path.write_text(yaml.safe_dump(kubeconfig))
    return path


def start_controller(house: House, name: str) -> "subprocess.Popen[bytes]":
    """A process of its own, as the Deployment would start it."""
    command = [
        sys.executable, "-m", "serving.rollout", "--prometheus", house.prometheus.url, "--port=0",
        "--trust", str(house.models[0].signed.keys / TRUST_FILE), "--look-seconds", str(LOOK_SECONDS),
    ]  # fmt: skip
    environment = {**os.environ, **house.s3.environment, "KUBECONFIG": str(house.kubeconfig), "HOSTNAME": name}
    with (house.folder / f"controller-{name}.log").open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, env=environment, preexec_fn=end_with_parent)


class World:
    """One test's: nothing is served when it begins. It ends the controllers that it starts; others may run on."""

    def __init__(self, house: House) -> None:
        self.house, self.kubectl, self.api = house, house.kubectl, house.api
        self.first, self.stable, self.canary = house.models
        self.players = Players(house.api, house.pods)
        self.processes: list[subprocess.Popen[bytes]] = []

    def controller(self, name: str = "one") -> "subprocess.Popen[bytes]":
        self.processes.append(start_controller(self.house, name))
        return self.processes[-1]

    def led(self, times: int = 1) -> None:
        until(lambda: self.log().count("leads in qinglan") >= times, "it leads")

    def start(self, model: Model, number: int = 1, **spec: Any) -> str:
        """A ModelRollout, as the deploy stage makes them; its name."""
        spec_fields = {
            "inferenceService": SERVICE,
            "release": model.release,
            "predictor": PREDICTOR,
            **POLICY,
            **spec,
        }
        self.api.create("modelrollouts", rollout_object(NS, number, spec_fields))
        return f"{spec_fields['inferenceService']}-{number}"

    def create(self, model: Model, mode: str = "Serverless") -> None:
        """An InferenceService as a first rollout makes it, and no rollout."""
        spec = {"inferenceService": SERVICE, "release": model.release, "predictor": PREDICTOR, "mode": mode}
        manifest = first_inference_service(rollout_object(NS, 1, spec))
        assert self.kubectl.server.create(manifest, f"{NS}/{ACCOUNT}").refusal == ""

    def serve(self, model: Model) -> None:
        """The same, until it has all of the traffic."""
        self.create(model)
        until(lambda: self.rolled(model), "the first model serves")

    def read(self) -> ServiceSnapshot:
        """By the rollout's own reader."""
        result = self.api.all("revisions", {})["items"]
        return service_snapshot(
            ServiceObjects(self.service(), {revision["metadata"]["name"]: revision for revision in result})
        )

    def rolled(self, model: Model) -> bool:
        observed = self.read()
        newest, rolled_out = observed.newest, observed.rolled_out
        whole = (
            observed.traffic == {model.uri: 100} and newest is not None and newest.ready and newest.uri == model.uri
        )
        return observed.settled and whole and rolled_out is not None and rolled_out.uri == model.uri

    def status(self, name: str) -> Object:
        result: Object = (self.api.get("modelrollouts", name) or {}).get("status") or {}
        return result

    def reached(self, name: str, *phases: str) -> Object:
        until(lambda: self.status(name).get("phase") in phases, lambda: f"{name} in {phases}: {self.account(name)}")
        return self.status(name)

    def has_share(self, name: str, percent: int) -> None:
        """Wait until the routes give the canary so much."""
        until(
            lambda: self.traffic().get(self.canary.uri) == percent,
            lambda: f"{percent} % for the canary: {self.traffic()}\n{self.account(name)}",
        )

    def ended(self, name: str) -> Object:
        return self.reached(name, "Done")

    def account(self, name: str) -> str:
        """Describe a rollout for an error: its service, its status and the controllers' log."""
        parts = (json.dumps(self.service()), json.dumps(self.status(name)), self.log())
        return "\n".join(part[-3000:] for part in parts)

    def say(self, name: str, **words: bool) -> None:
        """A person's word."""
        self.api.merge("modelrollouts", name, {"spec": words})

    def service(self) -> Object:
        return self.api.get("inferenceservices", SERVICE) or {}

    def desired(self) -> tuple[str, int | None]:
        predictor = self.service()["spec"]["predictor"]
        return predictor["model"]["storageUri"], predictor.get("canaryTrafficPercent")

    def ask(self, uri: str, percent: int | None) -> None:
        """As the controller would, by hand."""
        self.patch({"spec": {"predictor": {"canaryTrafficPercent": percent, "model": {"storageUri": uri}}}})

    def patch(self, change: Object) -> None:
        """The InferenceService, by the controller's account."""
        path = self.kubectl.server.resource("isvc").path(NS, SERVICE)
        assert self.kubectl.server.patch(path, change, f"{NS}/{ACCOUNT}").refusal == ""

    def traffic(self) -> dict[str, int]:
        """Per cent by URI, as the API server has it now, and by the routes: not by what our reader makes of them."""
        revisions: dict[str, Object] = {
            item["metadata"]["name"]: item for item in self.api.all("revisions", {})["items"]
        }
        return routed(self.service(), revisions)

    def events(self, name: str) -> list[Object]:
        result = self.api.all("events", {})["items"]
        return [event for event in result if event["involvedObject"]["name"] == name]

    def log(self) -> str:
        return "\n".join(path.read_text() for path in sorted(self.house.folder.glob("controller-*.log")))

    def close(self) -> None:
        for process in self.processes:
            stop(process)
        self.players.close()
        # Rollouts first: one that is under way would make what it is about anew.
        for kind in ("modelrollouts", "isvc"):
            self.kubectl.delete_all(kind, NS)
        if self.processes:
            server = self.kubectl.server
            server.request("DELETE", server.resource("lease").path(NS, ACCOUNT))
            for path in self.house.folder.glob("controller-*.log"):
                path.unlink()


def some_looks() -> None:
    """Long enough for a controller to do what it should not do."""
    time.sleep(5 * LOOK_SECONDS)


def kill(process: "subprocess.Popen[bytes]") -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()


def routed(service: Object, revisions: Mapping[str, Object]) -> dict[str, int]:
    """Return each model's share of the traffic, in per cent by URI."""
    shares: dict[str, int] = {}
    for target in service.get("status", {}).get("components", {}).get("predictor", {}).get("traffic") or ():
        revision = revisions.get(target["revisionName"])
        uri = revision["metadata"]["annotations"][SOURCE] if revision else ""
        shares[uri] = shares.get(uri, 0) + int(target.get("percent") or 0)
    return {uri: share for uri, share in shares.items() if share}


class Players:
    """Counts, for every model, what its share of the traffic makes of the requests of a tenth of a second, again and
    again; `fails` says which part of a version's requests fail."""

    def __init__(self, api: Api, pods: Mapping[str, Pod]) -> None:
        """`pods` has the pod of each release's URI."""
        self.pods = pods
        self.per_second = PER_SECOND
        self.fails: dict[str, float] = {}
        self._owed: dict[tuple[str, str], float] = {}
        self._heard: dict[str, dict[str, Object]] = {"inferenceservices": {}, "revisions": {}}
        self._informers = [Informer(api, kind, {}, self._hearing(kind)) for kind in self._heard]
        for informer in self._informers:
            informer.start()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._play, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stopped.set()
        self._thread.join()
        for informer in self._informers:
            informer.stop()

    def _hearing(self, kind: str) -> Callable[[str, Any], None]:
        """To be told of changes: asking ten times a second would keep the API server from everybody else."""

        def hear(what: str, thing: Any) -> None:
            known = {**self._heard[kind], thing["metadata"]["name"]: thing}
            if what == "DELETED":
                del known[thing["metadata"]["name"]]
            self._heard[kind] = known

        return hear

    def _play(self) -> None:
        last = time.monotonic()
        while not self._stopped.wait(0.1):
            now = time.monotonic()
            service = self._heard["inferenceservices"].get(SERVICE, {})
            for uri, share in routed(service, self._heard["revisions"]).items():
                self._count(uri, self.per_second * (now - last) * share / 100)
            last = now

    def _count(self, uri: str, requests: float) -> None:
        pod = self.pods.get(uri)
        if pod is None:
            return
        failing = self.fails.get(pod.version, 0.0)
        good, bad = (
            self._whole(uri, how, requests * part) for how, part in (("good", 1 - failing), ("bad", failing))
        )
        pod.serve(good, bad)

    def _whole(self, uri: str, how: str, owed: float) -> int:
        owed += self._owed.get((uri, how), 0.0)
        self._owed[uri, how] = owed - int(owed)
        return int(owed)


@contextmanager
def house_of(cluster: Any, s3: Minio, prometheus: Server, folder: Path) -> Iterator[House]:
    bucket = secrets.token_hex(4)
    Client(s3.endpoint.removeprefix("http://"), s3.key, s3.secret, secure=False).make_bucket(bucket)
    with pytest.MonkeyPatch.context() as patch:
        keys = use_keys(folder / "keys", patch)
        for name, value in s3.environment.items():
            patch.setenv(name, value)
        models = tuple(model(folder, keys, f"s3://{bucket}/fivedoctors", first) for first in (0.5, 0.25, 0.75))
        kubectl = Kubectl(cluster.kubeconfig)
        pods = {model.uri: Pod(NS, f"pod-of-{model.version}", model.version) for model in models}
        prometheus.find(*pods.values())
        try:
            yield House(kubectl, cluster, s3, folder, prometheus, models, Api(cluster.admin(), NS), pods)
        finally:
            prometheus.find()
            for pod in pods.values():
                pod.end()


def model(folder: Path, keys: Path, store: str, first: float) -> Model:
    whole_release = make_whole_release(folder / str(first), keys, first=first)
    release = read_release(whole_release.folder)
    open_store(store).push(whole_release.folder, digest(whole_release.folder))
    parts = {part.name: part.digest for part in release.statement.made}
    return Model(whole_release, ReleaseAddress(store, release.digest).uri, parts[MODEL])
