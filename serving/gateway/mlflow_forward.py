"""Proxy from training pods to MLflow. Pods can reach only the gateway, which holds the token."""

import os
import re
from typing import NamedTuple

import httpx2

from qinglan.errors import ConfigError, DataError, OutageError
from qinglan.http.http_client import async_client
from qinglan.llm.config import MlflowUpstream
from qinglan.llm.host_allowlist import check_host

FORWARDED = re.compile(r"(health|version|api/\d\.0/mlflow(-artifacts)?(/[\w-]+)+)")
"""Pattern of the paths that are forwarded: MLflow's REST interface, not its pages or anything else on its host."""


class Forwarded(NamedTuple):
    status: int
    media_type: str
    body: bytes


class MlflowForward:
    """Client of the MLflow server in the gateway's settings. If none is set, `send` raises a ConfigError."""

    def __init__(self, upstream: MlflowUpstream | None) -> None:
        self._upstream = upstream
        self._headers: dict[str, str] = {}
        if upstream is None:
            return
        check_host(upstream.base_url, "mlflow.base_url")
        if upstream.token_env:
            token = os.environ.get(upstream.token_env, "").strip()
            if not token:
                raise ConfigError(
                    f"mlflow: no token. Set the environment variable {upstream.token_env}, or leave token_env out."
                )
            self._headers["authorization"] = f"Bearer {token}"
        self._client = async_client(timeout=upstream.timeout_seconds)

    async def aclose(self) -> None:
        if self._upstream is not None:
            await self._client.aclose()

    async def send(self, method: str, path: str, query: str, body: bytes, media_type: str) -> Forwarded:
        """Forward a request to MLflow, with the gateway's token instead of the caller's headers.

        Raises a DataError if the path is not part of MLflow's REST interface.
        """
        if self._upstream is None:
            raise ConfigError("this gateway has no MLflow. Give its settings `mlflow: {base_url: ...}`.")
        if not FORWARDED.fullmatch(path):
            raise DataError(f"{path[:80]!r} is no path of MLflow's REST interface.")
        url = f"{self._upstream.base_url.rstrip('/')}/{path}" + (f"?{query}" if query else "")
        headers = {**self._headers, "content-type": media_type} if media_type else self._headers
        try:
            answer = await self._client.request(method, url, content=body, headers=headers)
        except httpx2.TransportError as error:
            raise OutageError(
                f"MLflow at {self._upstream.base_url}: {str(error) or type(error).__name__}. Is it up?"
            ) from error
        return Forwarded(answer.status_code, answer.headers.get("content-type", ""), answer.content)
