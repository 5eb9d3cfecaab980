"""Start a run on Kubeflow: compile the profile, check what it needs, upload the graph once, start it.

submitted = submit(KfpClient(read_access()), graph, RunRequest(...), print)
"""

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pipelines.checks.checks import Check
from pipelines.checks.cluster.cluster_checks import check_requirements, shared_namespace_checks
from pipelines.checks.cluster.gateway_checks import gateway_checks
from pipelines.checks.cluster.graph import Graph, read_graph, read_parameters
from pipelines.checks.cluster.requirements import Requirements, read_requirements
from pipelines.lines.all_lines import LINES
from pipelines.lines.overrides import NO_OVERRIDES
from pipelines.submit.kfp_client import KfpClient
from qinglan.errors import ConfigError
from qinglan.llm.config import GatewayConfig

if TYPE_CHECKING:
    from pipelines.graph.compiler import CompileTarget

FILE_PARAMETERS = ("questions", "knowledge_base", "labelled")
"""Parameters that name files, which a step on the cluster reads from an object store."""

STORE_ADDRESS = re.compile(r"(s3|minio|gs)://[^/\s]+/.+")
"""Addresses from which KFP's launcher can fetch a step's inputs; with any other the first step fails."""

SINGLE_USER_NAMESPACE = "kubeflow"
"""The namespace in which KFP runs all pods if users have no namespaces of their own."""


class RunRequest(NamedTuple):
    """Settings of a run to start."""

    pipeline: str
    parameters: Mapping[str, Any]
    experiment: str
    name: str = ""
    namespace: str = ""
    service_account: str = "pipeline-runner"
    checks: bool = True
    volumes: Mapping[str, float] = {}
    """Bytes that the run keeps on its volumes, by the names of their claims."""

    gateway: GatewayConfig | None = None
    """The profile's gateway settings, to compare with the cluster's; None for a compiled graph, and for style."""


class SubmittedRun(NamedTuple):
    run_id: str
    page: str
    name: str
    experiment: str
    pipeline: str
    version: str
    uploaded: bool
    """True if KFP did not have these bytes yet."""

    namespace: str


def submit(kfp: KfpClient, graph: Graph, request: RunRequest, say: Callable[[str], None]) -> SubmittedRun:
    """Start a run of a graph; everything that it needs is checked before anything is uploaded."""
    parameters = read_parameters(graph, check_input_addresses(request.parameters))
    many_users = kfp.many_users()
    kfp_namespace, namespace = namespaces(many_users, request.namespace)
    if request.checks:
        from pipelines.checks.cluster.cluster_reader import connect

        needs = read_requirements(graph, parameters, request.service_account)
        refuse_errors(check_cluster(connect(), needs, request, namespace, many_users), say)
    pipeline, version, uploaded = kfp.version(request.pipeline, graph, kfp_namespace)
    say(f"{request.pipeline}: version sha256-{graph.digest[:24]} {'uploaded' if uploaded else 'was there'}")
    experiment = kfp.experiment(request.experiment, kfp_namespace)
    name = request.name or f"{request.pipeline} {datetime.now().astimezone().isoformat(' ', 'milliseconds')}"
    run_id = kfp.start(name, pipeline, version, experiment, parameters, request.service_account)
    say(f"{name}: started in experiment {request.experiment}")
    return SubmittedRun(
        run_id, kfp.page(run_id), name, request.experiment, request.pipeline, version, uploaded, namespace
    )


def open_graph(path: str, options: Iterable[object]) -> tuple[Graph, str]:
    """Read a compiled graph, and name its pipeline; `options` of a profile are refused."""
    if any(options):
        raise ConfigError(f"{path} is compiled: tenant, profile, training, images and settings are part of it.")
    return read_graph(Path(path)), "-".join(("qinglan", *re.findall("[a-z0-9]+", Path(path).stem.lower())))


def profile_target(
    line: str, tenant: str, profile: str, training: str, overrides: Mapping[str, Any] = NO_OVERRIDES
) -> "CompileTarget":
    """Return the target to compile for a line and a profile, as the command line names them."""
    from pipelines.graph.compiler import target_of

    if line not in LINES:
        raise ConfigError(f"No line {line!r}. There are: {', '.join(LINES)}; or give a path that ends in .yaml.")
    if (line == "rewriter") is not (tenant not in ("", "style")):
        raise ConfigError(f"{line}: {'whose? Give a tenant' if line == 'rewriter' else 'is no tenant`s'}.")
    return target_of(tenant or line, profile, training, overrides)


def compile_graph(target: "CompileTarget", images: Iterable[str], folder: Path) -> tuple[Graph, str]:
    """Compile a profile's graph into the folder, from the current code, and name its pipeline."""
    from pipelines.graph.compiler import compile_targets, read_images

    [path] = compile_targets([target], folder, read_images(images))
    return read_graph(path), f"qinglan-{target.name.replace('.', '-')}"


def parse_parameters(options: Iterable[str]) -> dict[str, str]:
    pairs = {option: option.partition("=") for option in options}
    if wrong := [option for option, (name, equals, _) in pairs.items() if not (name and equals)]:
        raise ConfigError(f"--set {wrong[0]}: write it as NAME=VALUE.")
    return {name: value for name, _, value in pairs.values()}


def namespaces(many_users: bool, namespace: str) -> tuple[str, str]:
    """Return the namespace to pass to KFP, and the namespace of the pods."""
    if many_users and not namespace:
        raise ConfigError("This KFP has many users: give yours with --namespace.")
    return (namespace, namespace) if many_users else ("", namespace or SINGLE_USER_NAMESPACE)


def check_input_addresses(parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    """Refuse files that a step on the cluster cannot read; returns the parameters."""
    for name in FILE_PARAMETERS:
        value = parameters.get(name)
        if value is None or STORE_ADDRESS.fullmatch(str(value)):
            continue
        why = "KFP fetches a step's files from s3://, minio:// or gs:// alone, as bucket and path"
        if "://" not in str(value):
            why = "a step on the cluster cannot read a file of this machine"
        raise ConfigError(
            f"--{name.replace('_', '-')} {value}: {why}. "
            "Copy it into the object store and give its address: s3://bucket/path."
        )
    return parameters


def check_cluster(
    api: Any, needs: Requirements, request: RunRequest, namespace: str, many_users: bool
) -> list[Check]:
    """Check the cluster; returns an error for everything that would stop the run, and warnings."""
    from pipelines.checks.cluster.cluster_reader import read_cluster

    snapshot = read_cluster(api, needs, namespace)
    checks = check_requirements(needs, snapshot, request.volumes)
    if request.gateway and snapshot.gateway is not None:
        checks += gateway_checks(request.gateway, snapshot.gateway)
    elif request.gateway:
        unread = (
            "The gateway's settings on the cluster could not be read, so they were not compared with the profile's."
        )
        checks.append(Check("warning", "namespace", unread))
    return checks if many_users else [*checks, *shared_namespace_checks(snapshot)]


def refuse_errors(checks: Iterable[Check], say: Callable[[str], None]) -> None:
    """Print the warnings, and raise all errors together as one ConfigError."""
    lines = []
    for check in checks:
        if check.state == "error":
            parts = (f"  - {check.what}", f"    {check.next_step}", f"      {check.command}")
            lines += [line for line in parts if line.strip()]
        else:
            say(f"note: {check.what} {check.next_step}".rstrip())
    if lines:
        raise ConfigError("The run would wait for ever, or fail. Nothing was sent.", *lines)
