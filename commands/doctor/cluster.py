"""Checks of the cluster that KUBECONFIG names: versions, API groups, storage, and the checks of `qinglan submit`."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from pipelines.checks.checks import Check, failed, worst_state
from pipelines.checks.cluster.cluster_checks import TRAINING_OPERATOR
from pipelines.checks.cluster.cluster_reader import connect, read_platform
from pipelines.checks.cluster.cluster_snapshot import Platform
from pipelines.checks.cluster.requirements import read_requirements
from pipelines.checks.sizing.check import volume_bytes
from pipelines.lines.rewriter import RunConfig
from pipelines.submit.kfp_client import KfpClient, read_access
from pipelines.submit.start_run import RunRequest, check_cluster, compile_graph, profile_target
from qinglan.errors import ConfigError, QinglanError


class Component(NamedTuple):
    """A part of the platform, recognised by the API group of its resources."""

    name: str
    group: str
    needed: bool
    step: str


COMPONENTS = (
    Component("KServe", "serving.kserve.io", True, "Install KServe (manifests/README.md)."),
    Component(
        "training-operator", "kubeflow.org", True,
        f"kubectl apply --server-side -k '{TRAINING_OPERATOR}'",
    ),
    Component("Kubeflow Trainer", "trainer.kubeflow.org", False, "Not needed: jobs are PyTorchJobs."),
    Component("KubeRay", "ray.io", False, "Not needed: PPO brings its own Ray."),
    Component("Knative", "serving.knative.dev", False, "Not needed in KServe's Standard mode."),
    Component("ModelRollout", "qinglan.dev", True, "kubectl apply --server-side -k manifests/platform"),
)  # fmt: skip


def cluster_checks(config: RunConfig | None, tenant: str, profile: str, namespace: str) -> Iterator[Check]:
    """Check the platform, then a profile's requirements; an unreachable cluster is a single error."""
    try:
        api = connect()
        platform = read_platform(api)
    except QinglanError as error:
        why = str(error.__cause__ or error)
        yield Check("error", "cluster", why, "Set KUBECONFIG to the file of the cluster that KFP runs on.")
        return
    yield from platform_checks(platform)
    yield kfp_check()
    if config is not None and namespace:
        yield from requirement_checks(api, config, tenant, profile, namespace)
    elif config is not None:
        yield Check("warning", "cluster", "the profile's Secrets, volumes and rights were not looked for.",
                    "Give --namespace where its runs shall be.")  # fmt: skip


def platform_checks(platform: Platform) -> Iterator[Check]:
    yield Check("ok", "cluster", f"{platform.address}, Kubernetes {platform.version}.")
    for component in COMPONENTS:
        version = platform.groups.get(component.group)
        image = f", {tag}" if (tag := platform.images.get(component.group)) else ""
        if version:
            yield Check("ok", component.name, f"{component.group}/{version}{image}.")
        elif component.needed:
            yield Check("error", component.name, f"the cluster does not know {component.group}.", component.step)
        else:
            yield Check("ok", component.name, f"is not there. {component.step}")
    if not platform.storage_classes:
        yield Check("warning", "storage", "there is no StorageClass: each volume must be made by hand.",
                    "See manifests/base/storage.yaml for the claims.")  # fmt: skip
    elif not platform.default_class:
        yield Check("warning", "storage", f"no default among {', '.join(platform.storage_classes)}.",
                    "Name one in manifests/base/storage.yaml, or mark one as the default.")  # fmt: skip
    else:
        yield Check("ok", "storage", f"{platform.default_class} is the default StorageClass.")


def kfp_check() -> Check:
    try:
        access = read_access()
    except ConfigError as error:
        return Check("warning", "KFP", "its address is not known, so it was not asked.", str(error))
    try:
        KfpClient(access).many_users()
    except QinglanError as error:
        return failed("KFP", error)
    return Check("ok", "KFP", f"{access.endpoint} answers.")


def requirement_checks(api: Any, config: RunConfig, tenant: str, profile: str, namespace: str) -> Iterator[Check]:
    """Run the checks of `qinglan submit`, without input files, because only a submission names its files."""
    with TemporaryDirectory(prefix="qinglan-") as folder:
        graph, pipeline = compile_graph(profile_target("rewriter", tenant, profile, ""), (), Path(folder))
    request = RunRequest(
        pipeline, {}, tenant, namespace=namespace, volumes=volume_bytes(config), gateway=config.gateway
    )
    needs = read_requirements(graph, {}, request.service_account)._replace(inputs=())
    try:
        checks = check_cluster(api, needs, request, namespace, many_users=True)
    except QinglanError as error:
        yield failed("namespace", error)
        return
    yield from checks
    if worst_state(checks) != "error":
        yield Check("ok", "namespace", f"{namespace} has all that a run of this profile needs.")
