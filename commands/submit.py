"""`qinglan submit`, `follow` and `cancel`: runs on Kubeflow Pipelines."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from qinglan.terminal import say, say_json

if TYPE_CHECKING:
    from pipelines.lines.line import LineConfig
    from qinglan.llm.config import GatewayConfig

Endpoint = Annotated[
    str, typer.Option(help="KFP, with the prefix it is behind: https://host/pipeline. Or KFP_ENDPOINT.")
]
Namespace = Annotated[str, typer.Option(envvar="KFP_NAMESPACE", help="Your namespace, if KFP has many users.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout, all else on stderr.")]
RunId = Annotated[str, typer.Argument(help="The run's id, the last part of its page's address.")]
StopIt = Annotated[
    bool,
    typer.Option("--cancel-on-interrupt", help="Ctrl-C or SIGTERM cancels the run; without it, the run goes on."),
]


def submit(
    line: Annotated[str, typer.Argument(help="rewriter or style; or a compiled graph, a path that ends in .yaml.")],
    tenant: Annotated[
        str, typer.Argument(help="Of the rewriter: a folder of tenants/ or of pipelines/configs.")
    ] = "",
    profile: Annotated[str, typer.Option(help="As of `qinglan run`.", show_default="gpt; of style: a100")] = "",
    training: Annotated[
        str, typer.Option(help="A file of pipelines/configs/training, in place of the profile's.")
    ] = "",
    questions: Annotated[str, typer.Option(help="The sheet of questions in the object store: s3://...")] = "",
    knowledge_base: Annotated[str, typer.Option(help="The knowledge base in the object store: s3://...")] = "",
    labelled: Annotated[str, typer.Option(help="Of style: the labelled answers in the object store.")] = "",
    image: Annotated[
        list[str] | None, typer.Option(help="NAME=REFERENCE@sha256:DIGEST of each image: a release.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="NAME=VALUE: another of the run's parameters, or with dots a setting over the profile's."
        ),
    ] = None,
    experiment: Annotated[
        str, typer.Option(help="Created if there is none of this name.", show_default="tenant or line")
    ] = "",
    name: Annotated[str, typer.Option(help="The run's, on its page.", show_default="pipeline and time")] = "",
    endpoint: Endpoint = "",
    namespace: Namespace = "",
    service_account: Annotated[str, typer.Option(help="That the steps run as.")] = "pipeline-runner",
    follow: Annotated[bool, typer.Option(help="Stay until the run is over; its end is the exit code.")] = True,
    skip_checks: Annotated[
        bool,
        typer.Option("--skip-checks", help="Do not check memory, nor the cluster for what the run needs."),
    ] = False,
    cancel_on_interrupt: StopIt = False,
    as_json: Json = False,
) -> None:
    """Start a run on Kubeflow Pipelines and follow it.

    First the profile's memory is counted, as `qinglan fit` shows it. Then all that the run needs is
    looked for through KUBECONFIG: Secrets and their keys, volumes and their size, nodes with the GPUs, quotas,
    PyTorchJobs. KFP says RUNNING of a pod that waits for one of these for ever. The same graph is uploaded once. The
    token is in KFP_TOKEN, in a file that KFP_TOKEN_FILE names, or mounted for the service account.
    """
    import tempfile

    from pipelines.checks.promotion import cluster_promotion_notes
    from pipelines.lines.overrides import is_setting, parse_overrides
    from pipelines.lines.rewriter import RunConfig
    from pipelines.submit.kfp_client import KfpClient, read_access
    from pipelines.submit.start_run import (
        FILE_PARAMETERS,
        RunRequest,
        compile_graph,
        open_graph,
        parse_parameters,
        profile_target,
    )
    from pipelines.submit.start_run import submit as start

    say = _progress_printer(as_json)
    overrides = parse_overrides([option for option in set_ or () if is_setting(option)])
    settings = parse_parameters(option for option in set_ or () if not is_setting(option))
    files = zip(FILE_PARAMETERS, (questions, knowledge_base, labelled), strict=True)
    settings |= {name: value for name, value in files if value}
    kfp = KfpClient(read_access(endpoint))
    target = None if line.endswith(".yaml") else profile_target(line, tenant, profile, training, overrides)
    volumes: dict[str, float] = {}
    gateway = None
    if target and not skip_checks:  # before the graph is compiled, which takes seconds
        volumes, gateway = _checked_settings(target.config)
    with tempfile.TemporaryDirectory() as folder:
        if target:
            graph, pipeline = compile_graph(target, image or (), Path(folder))
        else:
            graph, pipeline = open_graph(line, (tenant, profile, training, image, overrides))
        request = RunRequest(
            pipeline, settings, experiment or tenant or graph.name, name, namespace, service_account, not skip_checks,
            volumes, gateway,
        )  # fmt: skip
        if target and isinstance(target.config, RunConfig):
            for note in cluster_promotion_notes(target.config):
                say(f"note: {note}")
        run = start(kfp, graph, request, say)
    say(f"page: {run.page}")
    if follow:
        _follow(kfp, run.run_id, run.namespace, cancel_on_interrupt, as_json, run._asdict())
    elif as_json:
        say_json({**run._asdict(), "state": "PENDING"})
    else:
        say(f"follow it: qinglan follow {run.run_id}")


def _checked_settings(config: "LineConfig") -> tuple[dict[str, float], "GatewayConfig | None"]:
    """Return the bytes that the profile's run keeps on each volume, and the profile's gateway settings.

    Raises ConfigError for a training that does not fit its machine, and for a run whose judged models would not be
    counted although the trust policy requires it.
    """
    from pipelines.checks.sizing.check import check_fit, volume_bytes
    from pipelines.lines.config import refuse_uncounted

    refuse_uncounted(config.register_.store)
    check_fit(config, volumes=False)
    return volume_bytes(config), getattr(config, "gateway", None)


def follow(
    run_id: RunId,
    endpoint: Endpoint = "",
    namespace: Namespace = "",
    cancel_on_interrupt: StopIt = False,
    as_json: Json = False,
) -> None:
    """Follow a run on Kubeflow Pipelines to its end, which is the exit code; Ctrl-C leaves it running."""
    from pipelines.submit.kfp_client import KfpClient, read_access
    from pipelines.submit.start_run import namespaces

    kfp = KfpClient(read_access(endpoint))
    _, pods = namespaces(kfp.many_users(), namespace)
    _progress_printer(as_json)(f"page: {kfp.page(run_id)}")
    _follow(kfp, run_id, pods, cancel_on_interrupt, as_json, {"run_id": run_id, "page": kfp.page(run_id)})


def cancel(run_id: RunId, endpoint: Endpoint = "", as_json: Json = False) -> None:
    """Cancel a run on Kubeflow Pipelines, and wait a minute for its end."""
    from pipelines.submit.follower import Follower, cancel_message
    from pipelines.submit.kfp_client import KfpClient, read_access

    kfp, say = KfpClient(read_access(endpoint)), _progress_printer(as_json)
    run = Follower(kfp, run_id, say).cancel()
    if as_json:
        say_json({"run_id": run_id, "page": kfp.page(run_id), "state": run.state})
    say(cancel_message(run, kfp.page(run_id)))


def _follow(
    kfp: Any, run_id: str, namespace: str, cancel_on_interrupt: bool, as_json: bool, about_run: dict[str, Any]
) -> None:
    """Follow the run to its end. An interrupt leaves it running, or cancels it with --cancel-on-interrupt.

    The JSON is always printed: a script that gets no run id would submit the run again.
    """
    from pipelines.submit.follower import Follower, cancel_message

    say = _progress_printer(as_json)
    follower = Follower(kfp, run_id, say, _cluster_view(namespace, say))
    try:
        run = follower.follow()
    except (KeyboardInterrupt, SystemExit) as stopped:
        code = 130 if isinstance(stopped, KeyboardInterrupt) else stopped.code
        if cancel_on_interrupt:
            say(cancel_message(follower.cancel(), kfp.page(run_id)))
        else:
            say(f"The run goes on. Follow it: qinglan follow {run_id}. End it: qinglan cancel {run_id}")
        raise SystemExit(code) from stopped
    finally:
        if as_json:
            say_json({**about_run, "state": follower.state, "steps": follower.states})
    follower.raise_unless_released(run)
    say(f"{run.name}: done")


def _cluster_view(namespace: str, say: Callable[[str], None]) -> Any:
    """Return readers of the run's pods and Workflow. If the cluster cannot be reached, print this and return a view
    without readers."""
    from pipelines.checks.cluster.cluster_reader import connect
    from pipelines.submit.follower import NO_WORKFLOW, ClusterView
    from pipelines.submit.pods import ClusterPods
    from pipelines.submit.workflow import ClusterWorkflow
    from qinglan.errors import ConfigError
    from qinglan.kubernetes.client import Api

    try:
        client = connect()
    except ConfigError as error:
        say(f"The run's cluster is not looked at. {error.__cause__ or error} {NO_WORKFLOW}")
        return ClusterView(namespace)
    return ClusterView(namespace, ClusterPods(client, namespace), ClusterWorkflow(Api(client, namespace)))


def _progress_printer(as_json: bool) -> Callable[[str], None]:
    """Return a function that prints progress lines, to stderr if stdout holds JSON for a program."""
    return lambda line: say(line, to=sys.stderr if as_json else sys.stdout)
