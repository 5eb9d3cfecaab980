"""A need that would wait for ever is named before anything is sent, with the command that creates it."""

import json
from pathlib import Path
from typing import Any

import pytest

import qinglan.jobs
from pipelines.checks.checks import Check
from pipelines.checks.cluster.cluster_checks import check_requirements
from pipelines.checks.cluster.cluster_reader import KFP_PERMISSIONS, ROLLOUT_PERMISSIONS
from pipelines.checks.cluster.cluster_snapshot import ClusterSnapshot, Node, Quota
from pipelines.checks.cluster.requirements import (
    ImportedInputs,
    NodeRequest,
    RequiredObject,
    Requirements,
    RolloutTarget,
)
from qinglan.jobs.cluster.rbac import LAUNCHER_PERMISSIONS, Permission
from qinglan.sizing.constants import GB

GPU, LABEL, A100 = "nvidia.com/gpu", "nvidia.com/gpu.product", "NVIDIA-A100-SXM4-80GB"
KEY = RequiredObject("Secret", "qinglan-builder-key", frozenset({"builder.pem"}), ("sft",))
CLAIM = RequiredObject("PersistentVolumeClaim", "qinglan-scratch", frozenset(), ("sft", "ppo"))
GIB = 1024**3
SFT = NodeRequest(("sft",), {GPU: 4, "cpu": 8, "memory": 64 * GIB}, 2, {LABEL: A100}, job=True)
RELEASED = "registry.example/qinglan/cpu@sha256:" + "0" * 64


def needs(
    *objects: RequiredObject, machines: tuple[NodeRequest, ...] = (), images: tuple[str, ...] = (RELEASED,)
) -> Requirements:
    return Requirements(objects, machines, images, "pipeline-runner")


def node(name: str, gpus: int = 8, product: str = A100, **changes: Any) -> Node:
    room = {GPU: gpus, "cpu": 96, "memory": 1024 * GIB}
    return Node(name, {LABEL: product}, room)._replace(**changes)


def snapshot(*objects: RequiredObject, **changes: Any) -> ClusterSnapshot:
    existing: dict[tuple[str, str], frozenset[str] | None] = {(item.kind, item.name): item.keys for item in objects}
    nodes = (node("a"), node("b"))
    return ClusterSnapshot("team", existing, nodes, (), frozenset({"pytorchjobs"}))._replace(**changes)


def missing(checks: list[Check]) -> list[str]:
    return [" ".join((check.what, check.next_step, check.command)) for check in checks if check.state == "error"]


def test_where_all_is_there_nothing_is_said() -> None:
    assert check_requirements(needs(KEY, CLAIM, machines=(SFT,)), snapshot(KEY, CLAIM)) == []


@pytest.mark.parametrize(
    ("need", "command"),
    [
        (KEY, "kubectl -n team create secret generic qinglan-builder-key --from-file="),
        (
            KEY._replace(keys=frozenset({"TOKEN"})),
            "create secret generic qinglan-builder-key --from-literal=TOKEN=...",
        ),
        (CLAIM, "kubectl -n team apply -f - <<< "),
        (
            RequiredObject("ServiceAccount", "runner", frozenset(), ("sft",)),
            "kubectl -n team create serviceaccount runner",
        ),
        (RequiredObject("ConfigMap", "notes", frozenset({"a"}), ("sft",)), "kubectl -n team create configmap notes"),
        (RequiredObject("Service", "qinglan-gateway", frozenset(), ("generate",)), "--set gateway_url="),
    ],
)
def test_a_missing_object_is_named_with_the_command_that_makes_it(need: RequiredObject, command: str) -> None:
    [result] = missing(check_requirements(needs(need), snapshot()._replace(objects={(need.kind, need.name): None})))

    assert f"{need.kind} {need.name} is not in namespace team" in result and command in result


def test_a_secret_without_its_key_is_as_good_as_none() -> None:
    [result] = missing(check_requirements(needs(KEY), snapshot(KEY._replace(keys=frozenset({"releaser.pem"})))))

    assert "has no key builder.pem" in result


def test_unreadable_objects_are_reported_and_do_not_stop_the_run() -> None:
    unread = ("Secret qinglan-builder-key could not be checked: you may not read it.",)

    findings = check_requirements(
        needs(KEY, machines=(SFT,)), snapshot(nodes=None, quotas=None, job_kinds=None, unread=unread)
    )

    assert [(item.state, item.what) for item in findings] == [("warning", unread[0])]


@pytest.mark.parametrize(
    ("nodes", "why"),
    [
        ((), "the cluster has no node"),
        ((node("a", product="H100"),), "none of 1 nodes has that label (there are: H100)"),
        ((node("a", labels={}),), "none of 1 nodes has that label."),
        ((node("a"), node("b", gpus=2)), "only 1 of them has as much"),
        ((node("a", gpus=2), node("b", gpus=2)), "the largest of them has 2 nvidia.com/gpu"),
        ((node("a", allocatable={GPU: 8, "cpu": 96, "memory": 32 * GIB}),), "the largest of them has 32 GiB"),
        (
            (
                node("a", allocatable={GPU: 8, "cpu": 4, "memory": 64 * GIB}),
                node("b", allocatable={GPU: 0, "cpu": 96, "memory": 64 * GIB}),
            ),
            "none of them has all of that",
        ),
    ],
)
def test_too_few_nodes_with_the_labels_and_the_room_are_explained(nodes: tuple[Node, ...], why: str) -> None:
    [result] = missing(check_requirements(needs(machines=(SFT,)), snapshot(nodes=nodes)))

    assert f"{LABEL}={A100} and 4 {GPU}, 8 cpu, 64 GiB memory each, and {why}" in result


def test_a_quota_below_the_whole_job_is_missing() -> None:
    quotas = (Quota("small", f"requests.{GPU}", 4), Quota("enough", f"requests.{GPU}", 8), Quota("x", "pods", 1))

    [result] = missing(check_requirements(needs(machines=(SFT,)), snapshot(quotas=quotas)))

    assert "sft wants 8 nvidia.com/gpu, and quota small in namespace team allows 4 nvidia.com/gpu." in result


def test_jobs_need_their_kind_and_the_right_to_make_them() -> None:
    [no_kind] = missing(check_requirements(needs(machines=(SFT,)), snapshot(job_kinds=frozenset({"tfjobs"}))))
    in_the_step = check_requirements(
        needs(machines=(SFT._replace(job=False),)), snapshot(job_kinds=frozenset(), denied=LAUNCHER_PERMISSIONS)
    )

    assert "does not know pytorchjobs.kubeflow.org" in no_kind and "kubectl apply --server-side -k" in no_kind
    assert in_the_step == []


@pytest.mark.parametrize(
    ("changes", "rights", "namespace"),
    [
        ({"denied": LAUNCHER_PERMISSIONS[:1]}, LAUNCHER_PERMISSIONS, "team"),
        ({"kfp_denied": KFP_PERMISSIONS}, KFP_PERMISSIONS, "team"),
        ({"rollout_denied": {"serving": ROLLOUT_PERMISSIONS}}, ROLLOUT_PERMISSIONS, "serving"),
    ],
)
def test_missing_rights_are_named_with_the_whole_role_in_their_namespace(
    changes: dict[str, Any], rights: tuple[Permission, ...], namespace: str
) -> None:
    requirements = needs(machines=(SFT,))._replace(rollouts=(RolloutTarget("serving", ("deploy",)),))
    here = {"rollout_kinds": frozenset({"modelrollouts"}), **changes}

    [finding] = check_requirements(requirements, snapshot(**here))

    role, binding = json.loads(finding.command.partition("<<< '")[2].removesuffix("'"))["items"]
    assert role["rules"] == [right.rule for right in rights] and role["metadata"]["namespace"] == namespace
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "pipeline-runner", "namespace": "team"}]


def test_the_rights_are_those_that_the_jobs_own_readme_lists() -> None:
    table = (Path(qinglan.jobs.__file__).parent / "README.md").read_text(encoding="utf-8")

    for right in LAUNCHER_PERMISSIONS:
        group = f" ({right.group})" if right.group else ""
        assert f"| {right.resource}{group} | {', '.join(right.verbs)} |" in table


INPUTS = ImportedInputs(
    ("s3://data/q.xlsx", "minio://mlpipeline/kb.jsonl"), ("generate", "validate"), "qinglan-store"
)
STORE = frozenset({"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"})
OWN_BUCKET = "minio://mlpipeline/v2/artifacts"


def judged(inputs: ImportedInputs = INPUTS, store: frozenset[str] | None = STORE, **changes: Any) -> list[Check]:
    """Check a run with these inputs, and this Secret in the cluster."""
    here: dict[str, Any] = {"pipeline_root": OWN_BUCKET, "stores": {"qinglan-store": store}}
    return check_requirements(needs()._replace(inputs=(inputs,)), snapshot(**(here | changes)))


def test_with_a_whole_secret_inputs_of_other_buckets_are_no_trouble() -> None:
    assert judged() == []


@pytest.mark.parametrize("root", [OWN_BUCKET, "s3://data"])
def test_inputs_in_kfps_own_bucket_need_no_key(root: str) -> None:
    own_bucket = INPUTS._replace(
        uris=("minio://mlpipeline/a", "gs://x/b") if root == OWN_BUCKET else ("s3://data/c",)
    )

    assert judged(own_bucket, None, pipeline_root=root) == []


@pytest.mark.parametrize(
    ("inputs", "store", "command"),
    [
        (INPUTS, None, "kubectl -n team create secret generic qinglan-store --from-literal=AWS_ACCESS_KEY_ID=..."),
        (INPUTS, STORE - {"AWS_REGION"}, '-p \'{"stringData":{"AWS_REGION":"..."}}\''),
        (INPUTS._replace(secret=""), STORE, "qinglan compile"),
    ],
)
def test_inputs_of_another_bucket_that_no_key_fetches_are_named(
    inputs: ImportedInputs, store: frozenset[str] | None, command: str
) -> None:
    [result] = missing(judged(inputs, store))

    assert "KFP could not fetch s3://data/q.xlsx" in result and command in result


@pytest.mark.parametrize("changes", [{"cloud_identity": True}, {"pipeline_root": None}, {"stores": {}}])
def test_a_cloud_identity_stands_for_a_key_and_what_cannot_be_read_is_no_finding(changes: dict[str, Any]) -> None:
    assert judged(store=None, **changes) == []


def test_an_image_by_tag_is_refused_where_the_namespace_would_refuse_its_pod() -> None:
    loose, tagged = "qinglan/cpu:0.1.0", "qinglan/sft:0.1.0"
    here = snapshot(by_tag=frozenset({tagged}))

    [result] = missing(check_requirements(needs(images=(loose, tagged, RELEASED)), here))

    assert result.startswith(f"{loose}: by tag")
    [tolerated] = check_requirements(needs(images=(tagged, RELEASED)), here)
    assert tolerated.state == "warning"


def test_a_claim_that_is_too_small_is_named_with_the_command_that_enlarges_it() -> None:
    volumes = {"qinglan-scratch": 700 * GB, "qinglan-base-weights": 70 * GB, "unread": 1 * GB}
    sizes = {"qinglan-scratch": 500 * GB, "qinglan-base-weights": 70 * GB, "without-size": 0.0}

    [result] = missing(check_requirements(needs(), snapshot(claim_bytes=sizes), volumes))

    assert "qinglan-scratch in namespace team has 500.0 GB, and the run keeps up to 700.0 GB" in result
    assert 'patch pvc qinglan-scratch -p \'{"spec":{"resources":{"requests":{"storage":"652Gi"}}}}\'' in result
