"""Client of Kubeflow Pipelines' REST API: upload a version, start a run, read it, cancel it.

This uses kfp_server_api, the generated client inside kfp.Client. kfp.Client 2.17 itself (kfp/client/client.py) sets
no time limit, reads a token only once, takes a login page for an answer, and reads a namespace and a cookie from a
file in the home folder. Both check TLS, and use no proxy of the environment.
"""

import json
import os
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from pipelines.checks.cluster.graph import Graph
from qinglan.errors import ConfigError, OutageError, QinglanError
from qinglan.http.addresses import address_fault

ENDPOINT, TOKEN, TOKEN_FILE, PAGES = "KFP_ENDPOINT", "KFP_TOKEN", "KFP_TOKEN_FILE", "KFP_UI_ENDPOINT"
MOUNTED_VARIABLE, MOUNTED_TOKEN = "KF_PIPELINES_SA_TOKEN_PATH", Path("/var/run/secrets/kubeflow/pipelines/token")
"""The path at which KFP's own SDK expects a service account's token: a volume of audience pipelines.kubeflow.org."""

TOKEN_STEP = f"Set {TOKEN_FILE} to a file that holds one, or {TOKEN} to the token."

SECONDS = (5, 60)
"""Time limits in seconds: to connect, and to answer."""

FINAL_STATES = frozenset({"SUCCEEDED", "FAILED", "CANCELED", "SKIPPED"})
SHOWN_BODY = 300


class KfpNotFound(ConfigError):
    """No object of this name or id exists in KFP."""


class KfpAccess(NamedTuple):
    """The address of KFP and the credentials of the caller."""

    endpoint: str
    """The address, with a prefix if there is one: https://host/pipeline."""

    token: Callable[[], str] | None = None
    """Reads the token; called before each request, because a mounted token is renewed while a run is followed."""

    pages: str = ""
    """The address of KFP's page for people, if it differs."""

    ca_file: str = ""

    @property
    def page_of(self) -> str:
        return f"{(self.pages or self.endpoint).rstrip('/')}/#/runs/details/"


class Task(NamedTuple):
    name: str
    state: str


class Run(NamedTuple):
    id: str
    name: str
    state: str
    error: str
    tasks: tuple[Task, ...]
    pipeline_id: str = ""
    version_id: str = ""

    @property
    def over(self) -> bool:
        return self.state in FINAL_STATES


def read_access(endpoint: str = "", environment: Mapping[str, str] = os.environ) -> KfpAccess:
    """Read KFP's address and credentials from the command line and the environment."""
    where = (endpoint or environment.get(ENDPOINT, "")).rstrip("/")
    if not where:
        raise ConfigError(f"Where is KFP? Give --endpoint, or set {ENDPOINT}: https://kubeflow.example.com/pipeline.")
    if fault := address_fault(where):
        raise ConfigError(f"--endpoint: {fault}. A token goes into {TOKEN}.")
    token: Callable[[], str] | None = None
    named = environment.get(TOKEN_FILE) or environment.get(MOUNTED_VARIABLE)
    path = Path(named) if named else MOUNTED_TOKEN
    if text := environment.get(TOKEN, "").strip():
        token = lambda: text  # noqa: E731
    elif named or path.is_file():
        token = partial(_read_token, path)
    return KfpAccess(where, token, environment.get(PAGES, ""), environment.get("SSL_CERT_FILE", ""))


def _read_token(path: Path) -> str:
    try:
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise ConfigError(f"{path}: the token for KFP cannot be read ({why}). {TOKEN_STEP}") from error
    if not token:
        raise ConfigError(f"{path}: holds no token for KFP. {TOKEN_STEP}")
    return token


class KfpClient:
    """Client of one KFP; every failure is raised as an error that says what to do."""

    def __init__(self, access: KfpAccess) -> None:
        import kfp_server_api as api
        from urllib3 import Retry

        configuration = api.Configuration(host=access.endpoint)
        # A redirect leads to a login page, whose answer is 200 with HTML: it must not be followed and taken for
        # KFP's.
        configuration.retries = Retry(total=0, redirect=0, raise_on_redirect=False)
        configuration.ssl_ca_cert = access.ca_file or None
        if access.token:
            token = access.token
            configuration.api_key = {"authorization": token()}
            configuration.api_key_prefix = {"authorization": "Bearer"}
            # The generated client calls this hook before each request: a projected token is replaced every hour
            # (https://kubernetes.io/docs/tasks/configure-pod-container/configure-service-account/).
            configuration.refresh_api_key_hook = lambda client_configuration: client_configuration.api_key.update(
                authorization=token()
            )
        self._models, self._access = api, access
        client = api.ApiClient(configuration)
        self._pipelines, self._uploads = api.PipelineServiceApi(client), api.PipelineUploadServiceApi(client)
        self._experiments, self._runs = api.ExperimentServiceApi(client), api.RunServiceApi(client)
        self._health = api.HealthzServiceApi(client)

    def page(self, run_id: str) -> str:
        return f"{self._access.page_of}{run_id}"

    def many_users(self) -> bool:
        """True if every object is in a user's namespace; as the first call, it also shows that KFP answers."""
        return bool(self._ask("reach KFP", self._health.healthz_service_get_healthz_with_http_info).multi_user)

    def version(self, name: str, graph: Graph, namespace: str) -> tuple[str, str, bool]:
        """Find the version with the graph's bytes, or upload it. Returns the ids of the pipeline and the version, and
        True if the version was uploaded now."""
        pipeline, called = self._pipeline(name, graph, namespace), f"sha256-{graph.digest[:24]}"
        versions = self._ask(
            "look for the version", self._pipelines.pipeline_service_list_pipeline_versions_with_http_info, pipeline,
            page_size=10, filter=_equals("name", called),
        ).pipeline_versions  # fmt: skip
        if versions:
            return pipeline, str(versions[0].pipeline_version_id), False
        with (
            tempfile.TemporaryDirectory() as folder
        ):  # the bytes that were checked, even if the file was changed since
            file = Path(folder, "pipeline.yaml")
            file.write_bytes(graph.text)
            version = self._ask(
                f"upload {graph.path.name}", self._uploads.upload_pipeline_version_with_http_info, str(file),
                pipelineid=pipeline, name=called, display_name=called, description=graph.description,
            )  # fmt: skip
        return pipeline, str(version.pipeline_version_id), True

    def _pipeline(self, name: str, graph: Graph, namespace: str) -> str:
        """Return the id of the pipeline of this name, which is created if it does not exist."""
        options = {"namespace": namespace} if namespace else {}
        find = self._pipelines.pipeline_service_get_pipeline_by_name_with_http_info
        try:
            return str(self._ask(f"look for pipeline {name}", find, name, **options).pipeline_id)
        except KfpNotFound:
            pipeline = self._models.V2beta1Pipeline(
                name=name, display_name=name, namespace=namespace or None, description=graph.description
            )
            create = self._pipelines.pipeline_service_create_pipeline_with_http_info
            return str(self._ask(f"make pipeline {name}", create, pipeline).pipeline_id)

    def experiment(self, name: str, namespace: str) -> str:
        """Return the id of the experiment of this name, which is created if it does not exist."""
        options = {"namespace": namespace} if namespace else {}
        experiments = self._ask(
            f"look for experiment {name}", self._experiments.experiment_service_list_experiments_with_http_info,
            page_size=10, filter=_equals("name", name), **options,
        ).experiments  # fmt: skip
        if experiments:
            return str(experiments[0].experiment_id)
        experiment = self._models.V2beta1Experiment(display_name=name, namespace=namespace or None)
        create = self._experiments.experiment_service_create_experiment_with_http_info
        return str(self._ask(f"make experiment {name}", create, experiment).experiment_id)

    def start(
        self, name: str, pipeline: str, version: str, experiment: str, parameters: Mapping[str, Any], account: str
    ) -> str:
        """Start a run; returns its id. If KFP's answer is lost, the run is looked up by its name."""
        body = self._models.V2beta1Run(
            display_name=name, experiment_id=experiment, service_account=account,
            pipeline_version_reference=self._models.V2beta1PipelineVersionReference(
                pipeline_id=pipeline, pipeline_version_id=version
            ),
            runtime_config=self._models.V2beta1RuntimeConfig(parameters=dict(parameters)),
        )  # fmt: skip
        create = self._runs.run_service_create_run_with_http_info
        try:
            return str(self._ask("start the run", create, body, experiment_id=experiment).run_id)
        except OutageError as error:
            # The request may have arrived although the answer did not: a second one would start, and pay for, the run
            # twice.
            if experiment_id := self._named(name, experiment, error):
                return experiment_id
            raise

    def _named(self, name: str, experiment: str, error: OutageError) -> str:
        try:
            answer = self._ask(
                "look for the run", self._runs.run_service_list_runs_with_http_info,
                experiment_id=experiment, page_size=10, filter=_equals("name", name),
            )  # fmt: skip
        except QinglanError as cause:
            raise OutageError(
                f"{error} Whether the run has started is not known: look for {name!r} among the runs first."
            ) from cause
        return next((str(run.run_id) for run in answer.runs or ()), "")

    def run(self, run_id: str) -> Run:
        """Read the current state of a run."""
        run = self._of_run(run_id, "look at", self._runs.run_service_get_run_with_http_info)
        details = run.run_details
        tasks = tuple(
            Task(task.display_name, task.state or "")
            for task in (details and details.task_details) or ()
            if task.display_name
        )
        reference = run.pipeline_version_reference
        return Run(
            str(run.run_id or run_id), run.display_name or run_id, run.state or "", _error(run), tasks,
            (reference and reference.pipeline_id) or "", (reference and reference.pipeline_version_id) or "",
        )  # fmt: skip

    def spec(self, run: Run) -> dict[str, Any]:
        """Read the graph of a run from KFP; empty if the graph was deleted."""
        if not run.version_id:
            return {}
        get = self._pipelines.pipeline_service_get_pipeline_version_with_http_info
        try:
            spec = self._ask("look at the run's graph", get, run.pipeline_id, run.version_id).pipeline_spec or {}
        except KfpNotFound:
            return {}
        return dict(spec.get("pipeline_spec", spec))

    def cancel(self, run_id: str) -> None:
        """Ask KFP to end a run; the run ends some time later."""
        self._of_run(run_id, "cancel", self._runs.run_service_terminate_run_with_http_info)

    def _of_run(self, run_id: str, what: str, call: Callable[..., Any]) -> Any:
        try:
            return self._ask(f"{what} run {run_id}", call, run_id)
        except KfpNotFound as error:  # KFP's own message is a chain of internal calls
            runs = self._access.page_of.removesuffix("/details/")
            raise KfpNotFound(
                f"Cannot {what} run {run_id}: {self._access.endpoint} has no such run. Is the id whole? The runs are "
                f"listed at {runs}"
            ) from error

    def _ask(self, what: str, call: Callable[..., Any], *words: Any, **options: Any) -> Any:
        """Send a request and check that the answer is KFP's own, not that of a proxy in front of it."""
        from kfp_server_api.exceptions import ApiException
        from urllib3.exceptions import HTTPError

        try:
            answer, status, headers = call(*words, **options, _request_timeout=SECONDS)
        except ApiException as error:
            raise self._explained(what, error) from error
        except HTTPError as error:
            raise self._no_answer(what, error) from error
        if "json" not in headers.get("Content-Type", ""):
            raise ConfigError(
                f"Cannot {what}: {self._access.endpoint} answers {status} with a page, not as KFP does. "
                f"{self._where()}"
            )
        return answer

    def _explained(self, what: str, error: Any) -> QinglanError:
        """Build the error for a request that KFP, or a server in front of it, refused."""
        status, message, from_kfp = int(error.status or 0), *_error_message(error.body)
        refused = f"Cannot {what}: {self._access.endpoint} said {status}"
        if status == 401 or 300 <= status < 400:
            login = f"It needs a login: set {TOKEN}, or {TOKEN_FILE} to a file that is kept fresh."
            renew = f"Your token is not valid, or no longer: get a new one into {TOKEN} or {TOKEN_FILE}."
            return ConfigError(f"{refused}. {renew if self._access.token else login}")
        where = f"{refused}{f' ({message[:SHOWN_BODY]})' if message else ''}."
        page = (
            "<" in str(error.body or "")[:20]
        )  # HTML or XML comes from a web server or an object store, not from KFP
        if status == 403 and not page:
            return ConfigError(f"{where} Ask the administrator of KFP, or give your --namespace.")
        if status == 404 and from_kfp:
            return KfpNotFound(where)
        if status in (403, 404):
            return ConfigError(f"{where} This is not KFP's answer. {self._where()}")
        if 400 <= status < 500 and status != 429:
            return ConfigError(where)
        return OutageError(f"{where} Try again in a while; the log of the ml-pipeline pod has the reason.")

    def _no_answer(self, what: str, error: Exception) -> QinglanError:
        from urllib3.exceptions import SSLError

        reason = getattr(error, "reason", None) or error
        if isinstance(reason, SSLError):
            return ConfigError(
                f"Cannot {what}: the certificate of {self._access.endpoint} is not trusted ({reason}). "
                "Set SSL_CERT_FILE to the certificate of its authority."
            )
        return OutageError(
            f"Cannot {what}: no answer from {self._access.endpoint} ({reason}). Is KFP up, and reached from here?"
        )

    def _where(self) -> str:
        login = f" A login page may stand before it: set {TOKEN}." if self._access.token is None else ""
        return f"Is the address whole? Behind a prefix it ends with that, such as /pipeline.{login}"


def _equals(field: str, value: str) -> str:
    """Build the filter of a list request: the field has this value."""
    # Quoted here, and once more by the generated client: KFP's API server unquotes it twice
    # (backend/src/apiserver/server/list_request_util.go).
    return quote(json.dumps({"predicates": [{"operation": "EQUALS", "key": field, "string_value": value}]}))


def _error(detail: Any) -> str:
    history = [state.error for state in detail.state_history or () if state.error]
    error = detail.error or (history[-1] if history else None)
    return str(error.message or "") if error else ""


def _error_message(body: Any) -> tuple[str, bool]:
    """Return the message in the body of an error, and True if the error is KFP's own."""
    try:
        read = json.loads(body or "")
    except ValueError:
        return "", False
    if not isinstance(read, dict):
        return "", False
    message = read.get("error_message") or read.get("message") or read.get("error") or ""
    return " ".join(str(message).split()), "code" in read or "error_message" in read
