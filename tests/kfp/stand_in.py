"""A small KFP: an HTTP server that speaks the paths and models of kfp-server-api, keeps what it is sent, plays runs.

with serving(StandIn()) as kfp: ... kfp.url
"""

import json
import re
import socket
import ssl
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, unquote_plus

import uvicorn
import yaml

from tests.kfp.contract import Call, faults, read_contract
from tests.screens.graph_yaml import LOADER
from tests.servers.echo_servers import Server

NOW = "2026-11-22T03:00:00Z"
TASKS_AROUND = ("root", "root-driver", "executor")
"""Tasks that the real back end lists beside the steps; one more has neither name nor state."""


class Scene(NamedTuple):
    """How a run is for one look at it; the last scene stays."""

    state: str
    tasks: dict[str, str] = {}
    error: str = ""


SUCCEEDS = (
    Scene("PENDING"),
    Scene("RUNNING", {"train-driver": "RUNNING"}),
    Scene("RUNNING", {"train": "RUNNING"}),
    Scene("SUCCEEDED", {"train": "RUNNING"}),  # the steps are behind, as with the real one
    Scene(
        "SUCCEEDED", {"train": "SUCCEEDED", "gate": "SUCCEEDED", "release": "SUCCEEDED", "condition-1": "SUCCEEDED"}
    ),
)


class Fault(NamedTuple):
    """In place of an answer; a call is spoiled where `path` occurs in its path."""

    path: str
    status: int = 0
    """0 breaks the connection in the middle of an answer."""

    body: bytes = b""
    kind: str = "application/json"
    headers: dict[str, str] = {}
    done: bool = False
    """The request is carried out; only the answer is lost."""


class Refused(Exception):
    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status, self.body = status, {"code": code, "message": message, "details": []}


class StandIn:
    def __init__(
        self, scenes: tuple[Scene, ...] = SUCCEEDS, token: str = "", prefix: str = "", many_users: bool = False
    ) -> None:
        self.url = ""
        self.scenes, self.token, self.prefix, self.many_users = scenes, token, prefix, many_users
        self.faults: list[Fault] = []
        self.heard: list[str] = []
        """Method and path of each call."""

        self.pipelines: dict[str, dict[str, Any]] = {}
        self.versions: dict[str, dict[str, Any]] = {}
        self.uploaded: list[bytes] = []
        self.experiments: dict[str, dict[str, Any]] = {}
        self.runs: dict[str, dict[str, Any]] = {}
        self.looks: dict[str, int] = {}
        self.ends_canceled = True
        """True if a canceled run ends; on some clusters it stays CANCELING."""

        self._contract = read_contract()

    async def __call__(self, scope: Any, receive: Callable[[], Any], send: Callable[[Any], Any]) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        query = {name: values[0] for name, values in parse_qs(scope["query_string"].decode()).items()}
        path = scope["raw_path"].decode().split("?")[0]
        self.heard.append(f"{scope['method']} {path}")
        fault = next((fault for fault in self.faults if fault.path in path), None)
        if fault is None or fault.done:
            status, answer = self._answer(scope["method"], path, query, headers, body)
        if fault is not None:
            self.faults.remove(fault)
            await _spoil(fault, send)
            return
        await _send(send, status, answer)

    def _answer(
        self, method: str, path: str, query: dict[str, str], headers: dict[str, str], body: bytes
    ) -> tuple[int, bytes]:
        if not path.startswith(f"{self.prefix}/apis/"):
            return 404, b"page not found"
        try:
            self._check_token(headers)
            call, ids = self._call(method, path.removeprefix(self.prefix))
            if strangers := set(query) - call.query:
                raise Refused(400, 3, f"no such query: {strangers}")
            answer = self._do(call, ids, query, self._body(call, body, headers))
        except Refused as error:
            return error.status, json.dumps(error.body).encode()
        if drift := list(faults(answer, call.answer) if call.answer != "object" else ()):
            raise AssertionError(f"{call}: KFP does not answer so: {drift}")
        return 200, json.dumps(answer).encode()

    def _check_token(self, headers: dict[str, str]) -> None:
        if self.token and headers.get("authorization") != f"Bearer {self.token}":
            raise Refused(401, 16, "Request header error: there is no user identity header.")

    def _call(self, method: str, path: str) -> tuple[Call, list[str]]:
        for (known, template), call in sorted(self._contract.items(), key=lambda entry: "{" in entry[0][1]):
            pattern = re.sub(r"\\\{[^}]+\\\}", "([^/:]+)", re.escape(template))
            if known == method and (result := re.fullmatch(pattern, path)):
                return call, [unquote(group) for group in result.groups()]
        raise Refused(404, 5, "Not Found")

    def _body(self, call: Call, body: bytes, headers: dict[str, str]) -> Any:
        """KFP refuses a field that it does not know."""
        if not call.body:
            return (body, headers.get("content-type", ""))
        read = json.loads(body)
        if wrong := list(faults(read, call.body)):
            raise Refused(400, 3, f"invalid body: {wrong}")
        return read

    def _do(self, call: Call, ids: list[str], query: dict[str, str], body: Any) -> Any:
        does: dict[tuple[str, str], Callable[[], Any]] = {
            ("GET", "healthz"): lambda: {"multi_user": self.many_users},
            ("GET", "pipelines/names/{name}"): lambda: self._by_name(ids[0], query),
            ("POST", "pipelines"): lambda: self._make_pipeline(body),
            ("GET", "pipelines/{pipeline_id}/versions"): lambda: {
                "pipeline_versions": _filtered(self.versions, query, "name", pipeline_id=ids[0])
            },
            ("GET", "pipelines/{pipeline_id}/versions/{pipeline_version_id}"): lambda: _find(self.versions, ids[1]),
            ("POST", "pipelines/upload_version"): lambda: self._upload(query, *body),
            ("GET", "experiments"): lambda: {"experiments": _filtered(self.experiments, query, "display_name")},
            ("POST", "experiments"): lambda: self._make_experiment(body),
            ("POST", "runs"): lambda: self._start(body),
            ("GET", "runs"): lambda: {"runs": _filtered(self.runs, query, "display_name")},
            ("GET", "runs/{run_id}"): lambda: self._get_run(ids[0]),
            ("POST", "runs/{run_id}:terminate"): lambda: self._terminate(ids[0]),
        }
        return does[call.method, call.path.removeprefix("/apis/v2beta1/")]()

    def _by_name(self, name: str, query: dict[str, str]) -> Any:
        for pipeline in self.pipelines.values():
            if pipeline["name"] == name and pipeline.get("namespace", "") == query.get("namespace", ""):
                return pipeline
        raise Refused(404, 5, f"Pipeline {name} not found")

    def _make_pipeline(self, body: Any) -> Any:
        if any(pipeline["name"] == body["name"] for pipeline in self.pipelines.values()):
            raise Refused(409, 6, f"The name {body['name']} already exists")
        return _created(self.pipelines, "pipeline_id", body)

    def _upload(self, query: dict[str, str], body: bytes, kind: str) -> Any:
        boundary = kind.split("boundary=")[1].encode()
        text = body.split(b"--" + boundary)[1].split(b"\r\n\r\n", 1)[1].removesuffix(b"\r\n")
        # One that does not parse would keep the real one busy for ever.
        spec, *platform = yaml.load_all(text, Loader=LOADER)
        if any(version["name"] == query["name"] for version in self.versions.values()):
            raise Refused(409, 6, "Failed to create a pipeline version")
        self.uploaded.append(text)
        whole = {"pipeline_spec": spec, "platform_spec": platform[0]} if platform else spec
        created = {"name": query["name"], "display_name": query["name"], "pipeline_id": query["pipelineid"]}
        created |= {name: query[name] for name in ("description",) if name in query}
        return _created(self.versions, "pipeline_version_id", {**created, "pipeline_spec": whole})

    def _make_experiment(self, body: Any) -> Any:
        return _created(self.experiments, "experiment_id", {**body, "storage_state": "AVAILABLE"})

    def _start(self, body: Any) -> Any:
        reference = body["pipeline_version_reference"]
        _find(self.versions, reference["pipeline_version_id"])
        _find(self.experiments, body["experiment_id"])
        created: dict[str, Any] = _created(self.runs, "run_id", body)
        self.looks[created["run_id"]] = 0
        return {**created, "state": "PENDING"}

    def _get_run(self, run_id: str) -> Any:
        run = _find(self.runs, run_id)
        scene = self.scenes[min(self.looks[run_id], len(self.scenes) - 1)]
        self.looks[run_id] += 1
        if state := run.get("state"):
            scene = scene._replace(state=state)
            if self.ends_canceled:
                run["state"] = "CANCELED"
        around: dict[str, str] = dict.fromkeys(TASKS_AROUND, scene.state)
        steps = {**around, **scene.tasks}
        tasks = [{"run_id": run_id, "display_name": name, "state": state} for name, state in steps.items()]
        result = {**run, "state": scene.state, "run_details": {"task_details": [*tasks, {"run_id": run_id}]}}
        if scene.error:
            result["state_history"] = [
                {"update_time": NOW, "state": scene.state, "error": {"code": 13, "message": scene.error}}
            ]
        return result

    def _terminate(self, run_id: str) -> Any:
        _find(self.runs, run_id)["state"] = "CANCELING"
        return {}


def _created(where: dict[str, dict[str, Any]], key: str, body: dict[str, Any]) -> dict[str, Any]:
    created = {**body, key: str(uuid.uuid4()), "created_at": NOW}
    where[created[key]] = created
    return created


def _find(where: dict[str, dict[str, Any]], key: str) -> dict[str, Any]:
    if key not in where:
        raise Refused(404, 5, f"{key} not found")
    return where[key]


def _filtered(where: dict[str, dict[str, Any]], query: dict[str, str], field: str, **also: str) -> list[Any]:
    """KFP unquotes a filter once more than HTTP has."""
    filter_body = json.loads(unquote_plus(query["filter"]))
    if wrong := list(faults(filter_body, "V2beta1Filter")):
        raise Refused(400, 3, f"failed to parse filter: {wrong}")
    [predicate] = filter_body["predicates"]
    expected = {field: predicate["string_value"], **also}
    return [entry for entry in where.values() if all(entry.get(name) == value for name, value in expected.items())]


async def _send(send: Any, status: int, body: bytes, kind: str = "application/json", **headers: str) -> None:
    sent = [(b"content-type", kind.encode()), *((name.encode(), value.encode()) for name, value in headers.items())]
    await send({"type": "http.response.start", "status": status, "headers": sent})
    await send({"type": "http.response.body", "body": body})


async def _spoil(fault: Fault, send: Any) -> None:
    if fault.status:
        await _send(send, fault.status, fault.body, fault.kind, **fault.headers)
        return
    half = [(b"content-type", b"application/json"), (b"content-length", b"1000")]
    await send({"type": "http.response.start", "status": 200, "headers": half})
    await send({"type": "http.response.body", "body": b'{"half":'})


@contextmanager
def serving(app: StandIn, tls: tuple[Path, Path] | None = None) -> Iterator[StandIn]:
    """The stand-in on loopback, in a thread; with a key and a certificate, over TLS."""
    listening = socket.create_server(("127.0.0.1", 0))
    files = {"ssl_keyfile": str(tls[0]), "ssl_certfile": str(tls[1])} if tls else {}
    config = uvicorn.Config(app, log_level="critical", lifespan="off", ssl_version=ssl.PROTOCOL_TLS_SERVER, **files)  # type: ignore[arg-type]
    server = Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    app.url = f"http{'s' if tls else ''}://127.0.0.1:{listening.getsockname()[1]}{app.prefix}"
    try:
        yield app
    finally:
        server.should_exit = True
        thread.join()
        listening.close()
