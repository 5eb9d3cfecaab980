"""An ingress gateway on loopback: it sends a request on by its Host header alone, and remembers what it was asked."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import httpx
from starlette.requests import Request
from starlette.responses import Response

from tests.servers.echo_servers import running

HOP = {"host", "connection", "content-length", "transfer-encoding", "keep-alive"}


class Received(NamedTuple):
    host: str
    path: str
    headers: Mapping[str, str]


class Ingress(NamedTuple):
    url: str
    routes: dict[str, str]
    """Address of each host's pods; an unknown host is a 404, as at Istio's gateway."""

    requests: list[Received]


@contextmanager
def ingress() -> Iterator[Ingress]:
    routes: dict[str, str] = {}
    requests: list[Received] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        request = Request(scope, receive)
        host, path = request.headers["host"], request.url.path
        requests.append(Received(host, path, request.headers))
        response = Response(status_code=404)
        if host in routes:
            forwarded = {name: value for name, value in request.headers.items() if name not in HOP} | {"host": host}
            async with httpx.AsyncClient(trust_env=False, timeout=60) as http:
                answer = await http.post(routes[host] + path, content=await request.body(), headers=forwarded)
            response = Response(answer.content, answer.status_code)
        await response(scope, receive, send)

    with running(app) as url:
        yield Ingress(url, routes, requests)
