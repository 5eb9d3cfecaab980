"""Jobs under the real training-operator, scheduler and quota; nodes are simulated, and pods end as they are told."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from components.training.kubeflow import janitor
from components.training.kubeflow.job_runner import read_launch_context
from qinglan.errors import ConfigError, OutageError
from qinglan.jobs import Outcome
from qinglan.jobs.cluster.job_status import TIMEOUT_EXIT_CODE
from qinglan.jobs.cluster.manifest import GPU
from qinglan.jobs.cluster.rbac import LAUNCHER_PERMISSIONS
from qinglan.jobs.spec import JobSpec
from qinglan.kubernetes import client as api_module
from qinglan.kubernetes.client import Api
from tests.cluster.jobs.api_proxy import wire
from tests.cluster.jobs.job_world import (
    ENDS_BADLY,
    ENDS_WELL,
    HELD,
    IMAGE,
    ONE_NODE,
    PATIENCE,
    RUNS_ON,
    TASK,
    TWO_NODES,
    WAIT_SECONDS,
    World,
)  # fmt: skip
from tests.cluster.plane.cluster import Cluster
from tests.cluster.waiting import until


@pytest.fixture
def world(simulated: Cluster, namespace: str, tmp_path: Path) -> World:
    return World(Api(simulated.admin(), namespace), tmp_path, [])


@pytest.fixture
def aside() -> Iterator[ThreadPoolExecutor]:
    """For a run that goes on beside the test."""
    with ThreadPoolExecutor() as pool:
        yield pool


def account(simulated: Cluster, namespace: str, rules: list[dict[str, list[str]]]) -> Api:
    """The API as a ServiceAccount with these rights."""
    from kubernetes import client

    admin = simulated.admin()
    rbac = client.RbacAuthorizationV1Api(admin)
    client.CoreV1Api(admin).create_namespaced_service_account(namespace, {"metadata": {"name": "steps"}})
    rbac.create_namespaced_role(namespace, {"metadata": {"name": "steps"}, "rules": rules})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "steps"}
    who = [{"kind": "ServiceAccount", "name": "steps", "namespace": namespace}]
    rbac.create_namespaced_role_binding(namespace, {"metadata": {"name": "steps"}, "roleRef": role, "subjects": who})
    return Api(simulated.account(namespace, "steps"), namespace)


RIGHTS = [right.rule for right in LAUNCHER_PERMISSIONS]


def test_these_rights_are_enough(world: World, simulated: Cluster) -> None:
    api = account(simulated, world.api.namespace, RIGHTS)

    assert world.run(ENDS_WELL, api=api) == Outcome(0)
    assert world.runner(RUNS_ON, api=api, run="run-2").run(ONE_NODE, world.log, stop=lambda: True).code == -15


def test_a_job_that_fails_names_its_pod_and_its_code(world: World) -> None:
    outcome = world.run(ENDS_BADLY, TWO_NODES)

    assert outcome.code == 3
    assert "master-0 ended with code 3" in outcome.reason or "worker-0 ended with code 3" in outcome.reason


@pytest.mark.parametrize("spec", [ONE_NODE, TWO_NODES])
def test_a_namespace_that_enforces_the_restricted_standard_takes_it(
    world: World, simulated: Cluster, spec: JobSpec
) -> None:
    from kubernetes import client

    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    client.CoreV1Api(simulated.admin()).patch_namespace(world.api.namespace, {"metadata": {"labels": labels}})

    assert world.run(ENDS_WELL, spec) == Outcome(0)


CHILD = """
import sys
from pathlib import Path
from qinglan.kubernetes.client import connect
from tests.cluster.jobs.job_world import ONE_NODE, World
api = connect()
World(api, Path(sys.argv[1]), []).runner({annotations}).run(ONE_NODE, Path(sys.argv[1]) / "train.log")
"""


def step(world: World, cluster: Cluster, annotations: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    """A real process that runs a job, once it does."""
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig), "QINGLAN_NAMESPACE": world.api.namespace}
    code = CHILD.replace("{annotations}", repr(dict(annotations)))
    process = subprocess.Popen([sys.executable, "-c", code, str(world.folder)], env=environment)
    until(lambda: "Running" in world.state())
    return process


def test_sigterm_deletes_the_job(world: World, simulated: Cluster) -> None:
    process = step(world, simulated, RUNS_ON)

    process.send_signal(signal.SIGTERM)

    assert process.wait(WAIT_SECONDS) == 143
    assert world.jobs() == []
    assert world.pods() == []


def test_after_a_step_was_killed_a_retry_follows_its_job_on(
    world: World, simulated: Cluster, aside: ThreadPoolExecutor
) -> None:
    process = step(world, simulated, RUNS_ON)
    process.kill()
    process.wait()
    [before] = world.jobs()
    other = ONE_NODE._replace(command=ONE_NODE.command._replace(argv=["python", "other.py"]))
    assert [world.runner(RUNS_ON).attaches(spec) for spec in (ONE_NODE, other)] == [True, False]

    followed = aside.submit(world.run, RUNS_ON)
    until(lambda: world.heard("found, and followed on"))
    world.finish()

    assert followed.result(WAIT_SECONDS) == Outcome(0)
    assert [job["metadata"]["uid"] for job in world.jobs()] == [before["metadata"]["uid"]]


def test_a_job_that_was_done_before_we_looked_is_found(world: World) -> None:
    job_item = world.api.create("pytorchjobs", world.manifest(ENDS_WELL))
    until(lambda: "Succeeded" in world.state())

    assert world.run(ENDS_WELL) == Outcome(0)
    assert [job["metadata"]["uid"] for job in world.jobs()] == [job_item["metadata"]["uid"]]


def test_a_job_that_failed_before_a_retry_is_made_anew(world: World) -> None:
    job = world.api.create("pytorchjobs", world.manifest(ENDS_BADLY))
    until(lambda: "Failed" in world.state())

    assert not world.runner(ENDS_BADLY).attaches(ONE_NODE)
    assert world.run(ENDS_BADLY).code == 3
    assert world.heard("an earlier attempt is over, and is replaced")
    assert world.jobs()[0]["metadata"]["uid"] != job["metadata"]["uid"]


def test_another_training_under_the_same_name_is_left_alone_while_it_runs(world: World) -> None:
    job = world.api.create("pytorchjobs", world.manifest(RUNS_ON))

    with pytest.raises(ConfigError, match="runs with another command, image or resources"):
        world.run(RUNS_ON, ONE_NODE._replace(command=ONE_NODE.command._replace(argv=["python", "other.py"])))

    [left] = world.jobs()
    assert left["metadata"]["uid"] == job["metadata"]["uid"]
    assert "deletionTimestamp" not in left["metadata"]


def test_told_to_stop_it_deletes_the_job_and_waits_until_it_is_gone(world: World) -> None:
    outcome = world.runner(RUNS_ON).run(TWO_NODES, world.log, stop=lambda: world.heard("2 of 2 pods run"))

    assert outcome == Outcome(-15, "it was told to stop")
    assert world.jobs() == []
    assert world.pods() == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError, SystemExit])
def test_an_interrupted_run_ends_its_job(world: World, error: type[BaseException]) -> None:
    def interrupt() -> bool:
        if world.heard("1 of 1 pods run"):
            raise error
        return False

    with pytest.raises(error):
        world.runner(RUNS_ON).run(ONE_NODE, world.log, stop=interrupt)

    assert world.jobs() == []


def test_a_quota_that_refuses_a_pod_is_said_and_its_sister_holds_no_gpu_on(world: World, simulated: Cluster) -> None:
    from kubernetes import client

    quota = {"metadata": {"name": "gpus"}, "spec": {"hard": {f"requests.{GPU}": "4"}}}
    client.CoreV1Api(simulated.admin()).create_namespaced_resource_quota(world.api.namespace, quota)

    outcome = world.run(RUNS_ON, TWO_NODES)

    assert outcome.code == 1
    assert "exceeded quota: gpus, requested: requests.nvidia.com/gpu=4" in outcome.reason
    assert world.jobs() == []


def test_without_a100s_it_says_after_a_while_what_the_scheduler_says(world: World) -> None:
    task = {**TASK, "node_selector": {"nvidia.com/gpu.product": "NVIDIA-A100-of-tomorrow"}}
    runner = world.runner(RUNS_ON, task=task)

    runner.run(ONE_NODE, world.log, stop=lambda: world.heard("has waited"))

    assert world.heard("didn't match Pod's node affinity/selector")
    assert world.heard("change cluster.gpu_nodes in the profile; or cancel the run.")


def test_a_job_over_its_time_limit_is_ended_by_the_runner(world: World, aside: ThreadPoolExecutor) -> None:
    followed = aside.submit(world.run, RUNS_ON)
    until(lambda: world.heard("1 of 1 pods run"))
    [job] = world.jobs()
    world.api.merge("pytorchjobs", job["metadata"]["name"], {"spec": {"runPolicy": {"activeDeadlineSeconds": 1}}})
    outcome = followed.result(WAIT_SECONDS)

    assert outcome.code == TIMEOUT_EXIT_CODE
    assert "longer than its" in outcome.reason
    until(lambda: not any("Running" in pod["status"].get("phase", "") for pod in world.pods()))


def test_a_master_that_ends_well_without_its_worker_is_a_failure(world: World) -> None:
    manifest = world.manifest(ENDS_WELL, TWO_NODES)
    worker = manifest["spec"]["pytorchReplicaSpecs"]["Worker"]
    meta = {**worker["template"]["metadata"], "annotations": HELD}
    manifest["spec"]["pytorchReplicaSpecs"]["Worker"] = {
        **worker,
        "template": {**worker["template"], "metadata": meta},
    }

    outcome = world.runner(ENDS_WELL).run_manifest(manifest, world.log, print, lambda: False)

    assert outcome.code == 1
    assert "1 of 1 workers never ran" in outcome.reason
    until(lambda: "Succeeded" in world.state())  # so says the operator


def test_a_worker_whose_node_is_drained_ends_the_job_with_its_name(world: World, aside: ThreadPoolExecutor) -> None:
    from kubernetes import client

    followed = aside.submit(world.run, RUNS_ON, TWO_NODES)
    until(lambda: world.heard("2 of 2 pods run"))
    name = next(pod["metadata"]["name"] for pod in world.pods() if "worker" in pod["metadata"]["name"])
    eviction = {"metadata": {"name": name, "namespace": world.api.namespace}}
    client.CoreV1Api(world.api.client).create_namespaced_pod_eviction(name, world.api.namespace, eviction)

    outcome = followed.result(WAIT_SECONDS)

    assert outcome.code != 0
    assert f"pod {name}" in outcome.reason
    assert "Its node was drained" in outcome.reason or "Somebody deleted it" in outcome.reason


def test_the_job_goes_when_the_pod_that_launched_it_is_deleted(
    world: World, simulated: Cluster, aside: ThreadPoolExecutor
) -> None:
    from kubernetes import client

    core = client.CoreV1Api(simulated.admin())
    step_pod = {"metadata": {"name": "step"}, "spec": {"containers": [{"name": "main", "image": IMAGE}]}}
    core.create_namespaced_pod(world.api.namespace, step_pod)
    place = read_launch_context(world.api, TASK, {"KFP_POD_NAME": "step"})
    runner = world.runner(RUNS_ON, owner=place.owner, image=place.image)
    followed = aside.submit(runner.run, ONE_NODE, world.log)
    until(lambda: "Running" in world.state())

    core.delete_namespaced_pod("step", world.api.namespace)

    outcome = followed.result(WAIT_SECONDS)
    assert place.image == IMAGE
    assert outcome.code == 1
    assert "somebody deleted it" in outcome.reason
    until(lambda: not world.jobs())


def test_a_real_api_server_is_ended_and_started_again_while_a_job_is_followed(
    world: World, simulated: Cluster, aside: ThreadPoolExecutor
) -> None:
    followed = aside.submit(world.run, RUNS_ON, TWO_NODES)
    until(lambda: world.heard("2 of 2 pods run"))
    [before] = world.jobs()

    simulated.restart("kube-apiserver")
    world.finish()

    assert followed.result(WAIT_SECONDS) == Outcome(0)
    assert world.jobs()[0]["metadata"]["uid"] == before["metadata"]["uid"]


def test_an_api_server_that_stays_away_is_an_outage_and_the_job_is_left_to_a_retry(
    world: World, simulated: Cluster, aside: ThreadPoolExecutor
) -> None:
    api = Api(simulated.admin(), world.api.namespace)
    with wire(api.client) as between:
        followed = aside.submit(world.run, RUNS_ON, ONE_NODE, api=api, patience=PATIENCE._replace(outage=1.0))
        until(lambda: world.heard("1 of 1 pods run"))
        between.cut()

        with pytest.raises(OutageError, match="is left running: run the step again, and it is followed on"):
            followed.result(WAIT_SECONDS)

    [left] = world.jobs()
    assert "deletionTimestamp" not in left["metadata"]
    world.finish()
    assert world.run(RUNS_ON) == Outcome(0)
    assert world.jobs()[0]["metadata"]["uid"] == left["metadata"]["uid"]


def test_without_the_operator_s_kind_it_is_said_what_to_install(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(api_module.PATHS, "pytorchjobs", "/apis/absent.example/v1")

    with pytest.raises(ConfigError, match="training-operator is not installed"):
        world.run(ENDS_WELL)


def test_a_token_that_no_longer_counts(world: World, simulated: Cluster) -> None:
    from kubernetes import client

    api = account(simulated, world.api.namespace, RIGHTS)
    client.CoreV1Api(simulated.admin()).delete_namespaced_service_account("steps", world.api.namespace)

    with pytest.raises(ConfigError, match="its token has expired"):
        world.run(ENDS_WELL, api=api)


@pytest.mark.parametrize(
    ("without", "words"),
    [
        ("create", r"ServiceAccount steps of \S+ may not create pytorchjobs"),
        ("watch", r"ServiceAccount steps of \S+ may not watch pytorchjobs"),
    ],
)
def test_a_right_that_lacks_is_named(world: World, simulated: Cluster, without: str, words: str) -> None:
    rules = [{**RIGHTS[0], "verbs": [verb for verb in RIGHTS[0]["verbs"] if verb != without]}, *RIGHTS[1:]]
    api = account(simulated, world.api.namespace, rules)

    with pytest.raises(ConfigError, match=words):
        world.run(ENDS_WELL, api=api, patience=PATIENCE._replace(outage=1.0))

    assert world.jobs() == []


def test_the_janitor_says_first_and_deletes_then(
    world: World, simulated: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(simulated.kubeconfig))
    job: dict[str, Any] = world.api.create("pytorchjobs", world.manifest(RUNS_ON))
    existing = ["--namespace", world.api.namespace]

    janitor.main(existing)
    janitor.main([*existing, "--max-hours", "0", "--dry-run"])
    assert f"would delete job {job['metadata']['name']}: it is older than 0 hours" in capsys.readouterr().out
    assert len(world.jobs()) == 1

    janitor.main([*existing, "--max-hours", "0"])
    until(lambda: not world.jobs())
