"""500 rollouts at once: the controller's calls of the API server, and its memory.

python -m benchmarks.rollout_controller --count 500

Beside it: asking for each ModelRollout and each InferenceService every 30 s, as a controller without watches would,
and writing nothing. The API server and etcd are real and alone: the InferenceServices, their revisions and their
statuses are written here, for KServe and Knative would need the two cores to bring up 500 of them. First all rollouts
have ended, then all of them are under way at 5 %, and every look writes down what was seen. Prometheus gives no
answer, as on its worst day.
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import orjson

from benchmarks.report import report
from qinglan.kubernetes.api_errors import ApiError
from qinglan.kubernetes.client import Api, connect
from qinglan.kubernetes.model_rollouts import rollout_object
from qinglan.lineage.signing.keys import KEYS_VARIABLE
from qinglan.lineage.signing.trust import TRUST_FILE, ensure_keys
from serving.rollout.canary_analysis import enter_step
from serving.rollout.cluster.first_inference_service import first_inference_service
from serving.rollout.cluster.inference_service import SOURCE_ANNOTATION, ServiceObjects
from serving.rollout.cluster.ledger import dump_status
from serving.rollout.cluster.object_cache import SERVICE_LABEL
from serving.rollout.cluster.target import service_snapshot
from serving.rollout.spec import RolloutSpec
from serving.rollout.state import DesiredModel, StableRelease, State
from tests.cluster.build.binaries import manifests
from tests.cluster.plane import certs, objects
from tests.cluster.plane.command_lines import Keys, parts, server
from tests.cluster.plane.plane import down
from tests.cluster.plane.ports import free_ports
from tests.cluster.plane.processes import Folder, admin_client, answering, start, until
from tests.manifests.manifest_objects import MANIFESTS
from tests.manifests.manifest_objects import objects as read_objects

NS = "bench"
OLD, NEW = "1" * 64, "2" * 64
KINDS = ("inferenceservices.serving.kserve.io", "revisions.serving.knative.dev")
POLLS_A_MINUTE = 4
"""A ModelRollout and its InferenceService, each every 30 s."""
TARGET_RATIO = 1.0
TARGET_MEBIBYTES = 512
QUIET = 15.0


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rollout_controller")
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=90.0, help="measured, of each of the two")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as root, api_server(Folder(Path(root))) as api:
        names = [f"model-{number}" for number in range(options.count)]
        each(lambda name: make(api, name), names)
        with controller(api, Path(root)) as (url, process):
            idle = calls_a_minute(url, options.seconds)
            each(lambda name: begin(api, name), names)
            busy = calls_a_minute(url, options.seconds)
            memory = resident(process)
            slow = looks_over(url, "1.0")
    polled = POLLS_A_MINUTE * options.count
    ratio = busy / polled
    report(
        "rollout-controller", ratio, TARGET_RATIO, ratio <= TARGET_RATIO and memory <= TARGET_MEBIBYTES,
        rollouts=options.count, calls_a_minute_ended=round(idle, 1), calls_a_minute_under_way=round(busy),
        calls_a_minute_polled=polled, mebibytes=memory, looks_over_1_s=slow, load=round(os.getloadavg()[0], 1),
    )  # fmt: skip


@contextmanager
def api_server(folder: Folder) -> Iterator[Api]:
    """Alone, with the three kinds; KUBECONFIG names it."""
    ports = free_ports()
    each_part = parts(folder, ports, Keys("bench", "bench-secret"))
    try:
        certs.make(folder.pki, server(ports))
        for name in ("etcd", "kube-apiserver"):
            start(folder, each_part[name], outlives=False)
        with admin_client(folder) as requests:
            for name in ("etcd", "kube-apiserver"):
                until(f"{name} is ready", answering(requests, each_part[name]), folder)
            hits = objects.load(file for module in ("kserve", "knative") for file in manifests(module, "crds"))
            kinds = [entry for entry in hits if entry["metadata"]["name"] in KINDS]
            kinds += read_objects(MANIFESTS / "platform/modelrollout.yaml")
            space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NS}}
            objects.apply(folder, [*kinds, space])
            served_kinds = objects.served(kinds)
            until("the kinds are served", lambda: objects.all_served(requests, server(ports), served_kinds), folder)
        os.environ["KUBECONFIG"] = str(folder.kubeconfig)
        api = connect()
        api.namespace = NS
        yield api
    finally:
        down(folder.root)


def each(work: Callable[[str], None], names: list[str]) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, names))


def make(api: Api, service: str) -> None:
    """As they stand at 5 %: two revisions, and a rollout that has ended."""
    rollout = rollout_object(NS, 1, spec_of(service))
    entry = first_inference_service(rollout)
    entry["spec"]["predictor"]["canaryTrafficPercent"] = 5
    created = api.create("inferenceservices", entry)
    revisions = {name: uri(digest) for name, digest in ((f"{service}-1", OLD), (f"{service}-2", NEW))}
    for name, source in revisions.items():
        body = api.create("revisions", revision(service, name, source))
        ready = {"conditions": [{"type": "Ready", "status": "True"}]}
        api.replace("revisions", f"{name}/status", {**body, "status": ready})
    api.replace("inferenceservices", f"{service}/status", {**created, "status": status(*revisions)})
    body = api.create("modelrollouts", rollout)
    done = State(phase="Done", outcome="Promoted")
    api.replace("modelrollouts", f"{service}-1/status", {**body, "status": dump_status(done)})


def begin(api: Api, service: str) -> None:
    """A second rollout, in its first step; a person's word is what makes the controller look."""
    hits = api.get("inferenceservices", service)
    assert hits is not None, "made before"
    revisions = {entry: api.get("revisions", entry) or {} for entry in (f"{service}-1", f"{service}-2")}
    observed = service_snapshot(ServiceObjects(hits, revisions))
    body = api.create("modelrollouts", rollout_object(NS, 2, {**spec_of(service), "paused": True}))
    spec = RolloutSpec.parse(body["spec"], service)
    state = State(
        phase="Analyse",
        stable=StableRelease(uri=uri(OLD), digest=OLD, model=OLD),
        desired=DesiredModel(uri=uri(NEW), percent=5),
        rest=observed.rest,
        uid=observed.uid,
        generation=observed.generation,
        percent=5,
    )
    body["status"] = dump_status(enter_step(state, spec, 0))
    while True:
        try:
            api.replace("modelrollouts", f"{service}-2/status", body)
            break
        except ApiError:  # the controller was faster: what it wrote is put right
            body["metadata"] = (api.get("modelrollouts", f"{service}-2") or {})["metadata"]


def uri(digest: str) -> str:
    return f"s3://bench/releases/{digest}"


def spec_of(service: str) -> dict[str, Any]:
    return {
        "inferenceService": service, "mode": "Serverless",
        "release": {"name": "bench/rewriter", "digest": NEW, "model": NEW, "uri": uri(NEW)},
        "predictor": {"runtime": "qinglan-rewriter-cpu", "format": "qinglan-rewriter"},
    }  # fmt: skip


def revision(service: str, name: str, source: str) -> dict[str, Any]:
    """As large as a real one: its pods are most of it."""
    environment = [{"name": f"A_SETTING_{number}", "value": "of the server " * 4} for number in range(30)]
    container = {"name": "kserve-container", "image": "qinglan/cpu:0.1.0", "env": environment}
    return {
        "apiVersion": "serving.knative.dev/v1", "kind": "Revision",
        "metadata": {"name": name, "labels": {SERVICE_LABEL: service}, "annotations": {SOURCE_ANNOTATION: source}},
        "spec": {"containers": [container]},
    }  # fmt: skip


def status(old: str, new: str) -> dict[str, Any]:
    predictor = {
        "latestCreatedRevision": new, "latestReadyRevision": new, "latestRolledoutRevision": old,
        "traffic": [
            {"revisionName": new, "latestRevision": True, "percent": 5},
            {"revisionName": old, "latestRevision": False, "percent": 95, "tag": "prev"},
        ],
    }  # fmt: skip
    conditions = [{"type": entry, "status": "True"} for entry in ("PredictorRouteReady", "Ready")]
    return {"deploymentMode": "Knative", "components": {"predictor": predictor}, "conditions": conditions}


@contextmanager
def controller(api: Api, folder: Path) -> Iterator[tuple[str, "subprocess.Popen[bytes]"]]:
    os.environ[KEYS_VARIABLE] = str(folder / "keys")
    ensure_keys(folder / "keys")
    command = [sys.executable, "-m", "serving.rollout", "--prometheus=http://127.0.0.1:1", "--port=0"]
    command += [f"--namespace={NS}", f"--trust={folder / 'keys' / TRUST_FILE}"]
    with (folder / "controller.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
    try:
        assert process.stdout is not None
        yield orjson.loads(process.stdout.readline())["rollout"], process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def calls_a_minute(url: str, seconds: float) -> float:
    """Once what was begun before has calmed down; renewals of the lease and watches are among them."""
    time.sleep(QUIET)
    before, began = calls(url), time.monotonic()
    time.sleep(seconds)
    return (calls(url) - before) * 60 / (time.monotonic() - began)


def calls(url: str) -> float:
    hits = re.findall(r"^qinglan_rollout_api_calls_total\{.*\} (\S+)$", metrics(url), re.MULTILINE)
    return sum(map(float, hits))


def looks_over(url: str, seconds: str) -> int:
    text = metrics(url)
    [fast] = re.findall(
        rf'^qinglan_rollout_look_seconds_bucket{{le="{re.escape(seconds)}"}} (\S+)$', text, re.MULTILINE
    )
    [every] = re.findall(r"^qinglan_rollout_look_seconds_count (\S+)$", text, re.MULTILINE)
    return int(float(every) - float(fast))


def metrics(url: str) -> str:
    return httpx.get(f"{url}/metrics", timeout=30).text


def resident(process: "subprocess.Popen[bytes]") -> int:
    [kibibytes] = re.findall(r"^VmRSS:\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text(), re.MULTILINE)
    return int(kibibytes) // 1024


if __name__ == "__main__":
    main()
