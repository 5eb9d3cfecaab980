"""Trainings reach MLflow through the gateway: with its token, on paths of MLflow's interface, and nowhere else."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from qinglan.errors import ConfigError, OutageError
from qinglan.live.trackers import MLFLOW_PATH, check_forwarded
from qinglan.llm.config import GatewayConfig
from serving.gateway.mlflow_forward import FORWARDED
from tests.servers.echo_servers import gateway, gateway_config, running

LOG_BATCH = "api/2.0/mlflow/runs/log-batch"


class Mlflow:
    """A server that notes what comes, and knows no run."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, dict[str, str], bytes]] = []
        self.app = Starlette(routes=[Route("/{path:path}", self._answer, methods=["GET", "POST"])])

    async def _answer(self, request: Request) -> Response:
        url = f"{request.url.path}?{request.url.query}".rstrip("?")
        self.requests.append((request.method, url, dict(request.headers), await request.body()))
        if request.method == "GET":
            return JSONResponse({"error_code": "RESOURCE_DOES_NOT_EXIST"}, 404)
        return JSONResponse({})


def with_mlflow(base_url: str, **settings: Any) -> GatewayConfig:
    values = gateway_config("http://127.0.0.1:9").model_dump(mode="json")
    return GatewayConfig.parse(values | {"mlflow": {"base_url": base_url, **settings}}, "gateway")


def at_gateway(config: GatewayConfig, folder: Path, ask: Callable[[str], Any]) -> Any:
    async def run() -> Any:
        async with gateway(config, folder) as url:
            return await asyncio.to_thread(ask, url + MLFLOW_PATH)

    return asyncio.run(run())


def test_what_a_client_sends_comes_to_mlflow_with_the_gateways_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN_OF_MLFLOW", "secret-token")
    mlflow, stranger = Mlflow(), {"authorization": "Bearer of-the-pod", "cookie": "a=b"}

    def ask(uri: str) -> list[httpx.Response]:
        return [
            httpx.post(f"{uri}/{LOG_BATCH}", json={"run_id": "r"}, headers=stranger, trust_env=False),
            httpx.get(f"{uri}/api/2.0/mlflow/runs/get?run_id=r", headers=stranger, trust_env=False),
        ]

    with running(mlflow.app) as url:
        sent, missing = at_gateway(with_mlflow(url, token_env="TOKEN_OF_MLFLOW"), tmp_path, ask)

    assert [(method, path) for method, path, *_ in mlflow.requests] == [
        ("POST", f"/{LOG_BATCH}"), ("GET", "/api/2.0/mlflow/runs/get?run_id=r"),
    ]  # fmt: skip
    assert mlflow.requests[0][3] == b'{"run_id":"r"}'
    assert mlflow.requests[0][2]["content-type"] == "application/json"
    for _, _, headers, _ in mlflow.requests:
        assert headers["authorization"] == "Bearer secret-token" and "cookie" not in headers
    assert (sent.status_code, missing.status_code) == (200, 404)
    assert missing.json() == {"error_code": "RESOURCE_DOES_NOT_EXIST"}


@pytest.mark.parametrize(
    ("path", "forwarded"),
    [
        ("health", True),
        (LOG_BATCH, True),
        ("api/3.0/mlflow/traces", True),
        ("api/2.0/mlflow-artifacts/artifacts", True),
        ("", False),
        ("static/index.html", False),
        ("ajax-api/2.0/mlflow/runs/get", False),
        ("api/2.0/mlflow/../../admin", False),
        ("api/2.0/mlflow/%2e%2e/admin", False),
        ("api/2.0/mlflow//evil.example/x", False),
        ("health/../admin", False),
    ],
)
def test_only_the_rest_interface_is_reached(path: str, forwarded: bool) -> None:
    assert bool(FORWARDED.fullmatch(path)) is forwarded


def test_a_path_that_is_refused_is_not_sent(tmp_path: Path) -> None:
    mlflow = Mlflow()
    with running(mlflow.app) as url:
        answer = at_gateway(with_mlflow(url), tmp_path, lambda uri: httpx.get(f"{uri}/health/admin", trust_env=False))

    assert answer.status_code == 400 and "'health/admin' is no path of MLflow" in answer.text
    assert mlflow.requests == []


def test_a_training_is_told_before_it_begins_that_mlflow_is_not_reached(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="this gateway has no MLflow"):
        at_gateway(gateway_config("http://127.0.0.1:9"), tmp_path / "none", check_forwarded)
    with pytest.raises(ConfigError, match=r"503.*MLflow at http://127\.0\.0\.1:9"):
        at_gateway(with_mlflow("http://127.0.0.1:9"), tmp_path / "away", check_forwarded)
    with pytest.raises(OutageError, match="Is the gateway up"):
        check_forwarded("http://127.0.0.1:9/trackers/mlflow")


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"base_url": "http://mlflow.example.com"}, "mlflow.base_url: host 'mlflow.example.com' is not allowed"),
        ({"base_url": "http://127.0.0.1:9", "token_env": "NOT_THERE"}, "Set the environment variable NOT_THERE"),
    ],
)
def test_a_gateway_with_a_strange_host_or_without_the_token_does_not_start(
    tmp_path: Path, settings: dict[str, Any], error: str
) -> None:
    with pytest.raises(ConfigError, match=error):
        at_gateway(with_mlflow(**settings), tmp_path, lambda uri: None)
