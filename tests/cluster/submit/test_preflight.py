"""Tests of the preflight on a real control plane: what a run lacks is named before KFP gets the run."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

from pipelines.checks.checks import Check
from pipelines.checks.cluster.cluster_checks import check_requirements
from pipelines.checks.cluster.cluster_reader import KFP_PERMISSIONS, connect, read_cluster
from pipelines.checks.cluster.graph import Graph, read_graph
from pipelines.checks.cluster.requirements import RequiredObject, Requirements, read_requirements
from pipelines.graph.compiler import COMPILED
from pipelines.submit.pods import ClusterPods
from qinglan.errors import ConfigError
from qinglan.jobs.cluster.rbac import LAUNCHER_PERMISSIONS
from tests.cluster.plane.cluster import Cluster
from tests.cluster.waiting import until
from tests.kfp.graphs import GPU, LABEL, compile_graph
from tests.kfp.stand_in import SUCCEEDS, StandIn, serving

RUNNER = "pipeline-runner"
INPUTS = {"questions": "s3://bucket/questions.xlsx"}


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return read_graph(compile_graph(tmp_path_factory.mktemp("graph") / "small.yaml"))


@pytest.fixture
def requirements(graph: Graph) -> Requirements:
    return read_requirements(graph, INPUTS, RUNNER)


@pytest.fixture
def api(cluster: Cluster) -> Any:
    return cluster.admin()


@pytest.fixture
def core(api: Any) -> Any:
    return client.CoreV1Api(api)


@pytest.fixture
def furnished(core: Any, api: Any, namespace: str) -> Iterator[str]:
    """A namespace with all that the graph needs."""
    core.create_namespaced_service_account(namespace, {"metadata": {"name": RUNNER}})
    for name, keys in (
        ("qinglan-builder-key", ["builder.pem"]), ("qinglan-release-keys", ["builder.pem", "releaser.pem"]),
        ("qinglan-store", ["AWS_ACCESS_KEY_ID"]),
    ):  # fmt: skip
        core.create_namespaced_secret(
            namespace, {"metadata": {"name": name}, "stringData": dict.fromkeys(keys, "secret")}
        )
    claim = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    core.create_namespaced_persistent_volume_claim(
        namespace, {"metadata": {"name": "qinglan-scratch"}, "spec": claim}
    )
    allow(api, namespace, RUNNER, *(right.rule for right in (*LAUNCHER_PERMISSIONS, *KFP_PERMISSIONS)))
    yield namespace


def allow(api: Any, namespace: str, account: str, *rules: Any) -> None:
    rights, name = client.RbacAuthorizationV1Api(api), f"{account}-jobs"
    rights.create_namespaced_role(namespace, {"metadata": {"name": name}, "rules": list(rules)})
    binding = {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
    }
    rights.create_namespaced_role_binding(namespace, binding)


def missing(api: Any, requirements: Requirements, namespace: str) -> list[str]:
    return [check.what for check in findings(api, requirements, namespace) if check.state == "error"]


def findings(api: Any, requirements: Requirements, namespace: str) -> list[Check]:
    return check_requirements(requirements, read_cluster(api, requirements, namespace))


def test_where_all_is_there_nothing_is_missing(api: Any, requirements: Requirements, furnished: str) -> None:
    checks = findings(api, requirements, furnished)

    assert [(check.state, check.what[:17]) for check in checks] == [("warning", "qinglan/cpu:0.1.0")]


def test_in_an_empty_namespace_everything_is_named_at_once(
    api: Any, requirements: Requirements, namespace: str
) -> None:
    messages = "\n".join(missing(api, requirements, namespace))

    for kind, name in (
        ("ServiceAccount", RUNNER), ("Secret", "qinglan-builder-key"), ("Secret", "qinglan-release-keys"),
        ("Secret", "qinglan-store"), ("PersistentVolumeClaim", "qinglan-scratch"),
    ):  # fmt: skip
        assert f"{kind} {name} is not in namespace {namespace}" in messages
    denied = "get, list, watch, create, delete pytorchjobs; get, list, watch pods; get pods/log; list, watch events"
    assert f"ServiceAccount {RUNNER} in namespace {namespace} may not {denied}" in messages


def fetching(api: Any, namespace: str) -> list[str]:
    """Return the messages for inputs in a bucket that is not KFP's own."""
    inputs = {"questions": "s3://data/q.xlsx", "knowledge_base": "minio://mlpipeline/kb.jsonl"}
    graph = read_graph(COMPILED / "rewriter.laptop.yaml")
    return [
        check
        for check in missing(api, read_requirements(graph, inputs, RUNNER), namespace)
        if "could not fetch" in check
    ]


def test_kfps_own_bucket_is_the_one_that_its_settings_name(api: Any, core: Any, furnished: str) -> None:
    core.delete_namespaced_secret("qinglan-store", furnished)
    [absent] = fetching(api, furnished)
    settings = {"metadata": {"name": "kfp-launcher"}, "data": {"defaultPipelineRoot": "s3://data/kfp"}}
    core.create_namespaced_config_map(furnished, settings)
    [other] = fetching(api, furnished)

    assert "could not fetch s3://data/q.xlsx" in absent and "its own (minio://mlpipeline/v2/artifacts)" in absent
    assert "could not fetch minio://mlpipeline/kb.jsonl" in other and "its own (s3://data/kfp)" in other


def test_images_by_tag_are_refused_where_the_namespace_takes_digests_alone(
    api: Any, core: Any, requirements: Requirements, furnished: str
) -> None:
    core.patch_namespace(furnished, {"metadata": {"labels": {"qinglan.dev/images": "by-digest"}}})
    refused = missing(api, requirements, furnished)
    listed = {"qinglan.dev/images-by-tag": "kfp/driver:1 qinglan/cpu:0.1.0"}
    core.patch_namespace(furnished, {"metadata": {"annotations": listed}})

    assert [message.startswith("qinglan/cpu:0.1.0: by tag, and namespace") for message in refused] == [True]
    assert missing(api, requirements, furnished) == []


def test_nodes_that_the_cluster_has_not_are_named(api: Any, requirements: Requirements, furnished: str) -> None:
    train, _ = requirements.machines
    other, large = train._replace(labels={LABEL: "NVIDIA-Z9"}), train._replace(asks={**train.asks, GPU: 64})
    memory, many = train._replace(asks={"memory": 1024.0**5}), train._replace(nodes=500)

    messages = [
        missing(api, requirements._replace(machines=(machine,)), furnished)
        for machine in (other, large, memory, many)
    ]

    assert [len(message) for message in messages] == [1, 1, 1, 1]
    assert "nodes has that label" in messages[0][0] and "there are: NVIDIA-" in messages[0][0]
    assert "the largest of them has" in messages[1][0] and GPU in messages[1][0]
    assert "GiB memory" in messages[2][0]
    assert "have as much" in messages[3][0]


def test_objects_that_may_not_be_read_are_reported_and_do_not_stop_the_preflight(
    cluster: Cluster, core: Any, requirements: Requirements, furnished: str
) -> None:
    core.create_namespaced_service_account(furnished, {"metadata": {"name": "guest"}})

    observed = findings(cluster.account(furnished, "guest"), requirements, furnished)

    unread = [check.what for check in observed if check.state == "warning"]
    assert [check for check in observed if check.state == "error"] == []
    assert "Secret qinglan-store could not be checked: you may not read it." in unread
    assert "nodes could not be checked: you may not read it." in unread


def test_an_expired_token_is_said_with_the_next_step(
    cluster: Cluster, requirements: Requirements, namespace: str
) -> None:
    admin = cluster.admin().configuration
    expired = client.Configuration(host=admin.host, api_key={"authorization": "Bearer expired"})
    expired.ssl_ca_cert, expired.verify_ssl = admin.ssl_ca_cert, admin.verify_ssl

    with pytest.raises(ConfigError, match=r"does not know you \(401\).*Log in to the cluster again"):
        read_cluster(client.ApiClient(expired), requirements, namespace)


def test_a_namespace_that_is_not_there_is_named(api: Any, requirements: Requirements) -> None:
    with pytest.raises(ConfigError, match="The cluster has no namespace qinglan-nowhere"):
        read_cluster(api, requirements, "qinglan-nowhere")


def test_a_cluster_that_is_away_is_named(
    requirements: Requirements, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "config"
    config.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: a\nusers: [{name: a, user: {}}]\n"
        "clusters: [{name: a, cluster: {server: 'http://127.0.0.1:1'}}]\n"
        "contexts: [{name: a, context: {cluster: a, user: a}}]\n"
    )
    monkeypatch.setenv("KUBECONFIG", str(config))

    with pytest.raises(ConfigError, match=r"http://127\.0\.0\.1:1, which KUBECONFIG names, gives no answer"):
        read_cluster(connect(), requirements, "default")


def test_why_a_pod_of_the_run_waits_is_the_schedulers_own_reason(api: Any, core: Any, furnished: str) -> None:
    core.create_namespaced_pod(furnished, pod("train-1", gpus=64, node="qinglan-small-abc.root.train.executor"))
    pods = ClusterPods(api, furnished)

    until(lambda: pods.stuck("run-1"))

    [check] = pods.stuck("run-1")
    assert (check.step, check.state) == ("train", "waiting")
    assert "nodes are available" in check.why
    assert pods.stuck("run-2") == []


def test_how_a_pod_of_the_run_failed_is_told(simulated: Cluster, core: Any, api: Any, furnished: str) -> None:
    failing = pod("train-1", gpus=0, node="qinglan-small-abc.root.train.executor(0)")
    failing["metadata"]["annotations"] |= {"sim/exit-code": "3", "sim/run-seconds": "0s"}
    core.create_namespaced_pod(furnished, failing)
    pods = ClusterPods(api, furnished)

    until(lambda: pods.stuck("run-1") and pods.stuck("run-1")[0].state == "failed")

    [problem] = pods.stuck("run-1")
    assert (problem.step, problem.why) == ("train", "container main ended with 3 (Error)")


def pod(name: str, gpus: int, node: str = "x") -> dict[str, Any]:
    limits = {"limits": {GPU: str(gpus)}} if gpus else {}
    return {
        "metadata": {
            "name": name,
            "labels": {"pipeline/runid": "run-1", "qinglan.dev/run": "run-1"},
            "annotations": {"workflows.argoproj.io/node-name": node},
        },
        "spec": {
            "restartPolicy": "Never",
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "main", "image": "qinglan/cpu:0.1.0", "resources": limits}],
        },
    }


def test_the_command_names_what_is_missing_and_starts_once_it_is_there(
    cluster: Cluster, core: Any, furnished: str, graph: Graph, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
    core.delete_namespaced_secret("qinglan-store", furnished)
    with serving(StandIn(scenes=(SUCCEEDS[-1],))) as kfp:
        words = [str(graph.path), "--questions", INPUTS["questions"], "--endpoint", kfp.url, "--namespace", furnished]
        refused = submitted(words, monkeypatch)
        before = list(kfp.uploaded)
        output = capsys.readouterr().err
        core.create_namespaced_secret(
            furnished, {"metadata": {"name": "qinglan-store"}, "stringData": {"AWS_ACCESS_KEY_ID": "x"}}
        )
        done = submitted(words, monkeypatch)

    assert (refused, before, done, len(kfp.runs)) == (2, [], 0, 1)
    assert (
        f"kubectl -n {furnished} create secret generic qinglan-store --from-literal=AWS_ACCESS_KEY_ID=..." in output
    )


def submitted(words: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    from commands.cli import main

    monkeypatch.setattr(sys, "argv", ["qinglan", "submit", *words])
    with pytest.raises(SystemExit) as end:
        main()
    return int(end.value.code or 0)


def test_the_gateways_settings_are_read_as_they_were_deployed(
    api: Any, core: Any, requirements: Requirements, furnished: str
) -> None:
    gateway = RequiredObject("Service", "qinglan-gateway", frozenset(), ("generate",))
    asks = requirements._replace(objects=(*requirements.objects, gateway))
    before = read_cluster(api, asks, furnished).gateway
    labels, settings = {"app": "gateway"}, "qinglan-gateway-7kc2"
    core.create_namespaced_config_map(
        furnished, {"metadata": {"name": settings}, "data": {"gateway.yaml": "budget: 7"}}
    )
    template = {
        "metadata": {"labels": labels},
        "spec": {
            "containers": [{"name": "gateway", "image": "x"}],
            "volumes": [{"name": "tmp", "emptyDir": {}}, {"name": "c", "configMap": {"name": settings}}],
        },
    }  # fmt: skip
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    body = {"metadata": {"name": "qinglan-gateway"}, "spec": spec}
    client.AppsV1Api(api).create_namespaced_deployment(furnished, body)

    assert before is None
    assert read_cluster(api, asks, furnished).gateway == "budget: 7"
