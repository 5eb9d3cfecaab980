"""The processes that the serving benchmark asks: ours, a stub of vLLM, a bare proxy, ours without batches.

python -m benchmarks.serving_world stub 0.05 | proxy http://... | alone FOLDER
"""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson

from qinglan.services import end_with_parent

COMPLETION = {
    "id": "cmpl-1", "object": "text_completion", "model": "rewriter",
    "choices": [{"index": 0, "text": "虾青素软胶囊 每日服用频次", "finish_reason": "stop", "logprobs": None}],
    "usage": {"prompt_tokens": 60, "completion_tokens": 9, "total_tokens": 69},
}  # fmt: skip


@contextmanager
def started(log: Path, *command: str) -> Iterator[tuple[str, int]]:
    """The address that a program says on its first line, and its process."""
    with log.open("ab") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", *command], stdout=subprocess.PIPE, stderr=errors, preexec_fn=end_with_parent
        )
    assert process.stdout is not None
    try:
        yield str(next(iter(orjson.loads(process.stdout.readline()).values()))), process.pid
    finally:
        process.terminate()
        process.wait(30)
        process.stdout.close()


@contextmanager
def server(model: Path, folder: Path, *options: str) -> Iterator[tuple[str, int]]:
    """Ours, ready."""
    import httpx

    log = folder / "server.log"
    with started(log, "serving.rewriter", "--model", str(model), "--port", "0", *options) as (url, pid):
        while httpx.get(f"{url}/v2/health/ready", trust_env=False).status_code != 200:
            time.sleep(0.1)
        yield url, pid


def alone(model: Path, folder: Path) -> Any:
    """Ours, one question at a time."""
    return started(folder / "alone.log", "benchmarks.serving_world", "alone", str(model))


def stub(seconds: float, folder: Path) -> Any:
    return started(folder / "stub.log", "benchmarks.serving_world", "stub", str(seconds))


def proxy(url: str, folder: Path) -> Any:
    return started(folder / "proxy.log", "benchmarks.serving_world", "proxy", url)


def taught(folder: Path) -> Path:
    """A tiny model that comes to an end; made once."""
    from tests.tiny_rewriter import taught_model

    return folder if folder.is_dir() else taught_model(folder)


def serve_stub(seconds: str) -> None:
    """It answers a GET at once, and a completion after so long."""
    import asyncio

    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    from serving.http_server import listen, serve_app

    body = orjson.dumps(COMPLETION)

    async def complete(request: Request) -> Response:
        await request.body()
        await asyncio.sleep(float(seconds))
        return Response(body, media_type="application/json")

    async def health(_: Request) -> Response:
        return Response()

    app = Starlette(routes=[Route("/v1/completions", complete, methods=["POST"]), Route("/health", health)])
    asyncio.run(serve_app("stub", app, listen("127.0.0.1", 0)))


def serve_proxy(url: str) -> None:
    """What anybody would write first."""
    import asyncio

    import httpx
    from fastapi import FastAPI, Request, Response

    from serving.http_server import listen, serve_app

    app, client = FastAPI(), httpx.AsyncClient(base_url=url, trust_env=False, timeout=30)

    @app.post("/v1/completions")
    async def complete(request: Request) -> Response:
        answer = await client.post("/v1/completions", json=await request.json())
        return Response(orjson.dumps(answer.json()), answer.status_code, media_type="application/json")

    asyncio.run(serve_app("proxy", app, listen("127.0.0.1", 0)))


def serve_alone(model: str) -> None:
    from serving.rewriter import __main__, backends
    from serving.rewriter.config import ServerConfig

    backends.MAX_BATCH = 1
    sys.argv = sys.argv[:1]
    __main__.serve(ServerConfig(model=Path(model), port=0))


if __name__ == "__main__":
    {"stub": serve_stub, "proxy": serve_proxy, "alone": serve_alone}[sys.argv[1]](sys.argv[2])
