"""A stand-in for vLLM: it speaks /v1/completions, /v1/models and /health, and has the faults that it is told to have.

python -m tests.serving.rewriter.standin_vllm      prints {"vllm": "http://127.0.0.1:40123"}
POST /behave {"text": "...", "seconds": 0.05, "status": 200, "finish": "stop", "broken": 0, "healthy": true}
GET /asked      every completion request so far
"""

import asyncio
import socket
import sys
from typing import Any

import orjson
import uvicorn
from fastapi import FastAPI, Request, Response

GOOD: dict[str, Any] = {
    "text": "虾青素软胶囊 每日服用频次", "seconds": 0.0, "status": 200, "finish": "stop",
    "broken": 0, "healthy": True,
}  # fmt: skip


def create_app() -> FastAPI:
    app, behaviour, asked = FastAPI(), dict(GOOD), list[dict[str, Any]]()

    @app.post("/behave")
    async def behave(request: Request) -> None:
        behaviour.update(GOOD | orjson.loads(await request.body()))
        asked.clear()

    @app.get("/asked")
    async def told() -> list[dict[str, Any]]:
        return asked

    @app.get("/health")
    async def health() -> Response:
        return Response(status_code=200 if behaviour["healthy"] else 503)

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [{"id": "rewriter", "object": "model"}]}

    @app.post("/v1/completions")
    async def complete(request: Request) -> Response:
        given = orjson.loads(await request.body())
        asked.append(given)
        if behaviour["broken"]:
            behaviour["broken"] -= 1
            request.scope["transport_of_this_request"].close()
        await asyncio.sleep(behaviour["seconds"])
        choice = {"index": 0, "text": behaviour["text"], "finish_reason": behaviour["finish"], "logprobs": None}
        body = {"id": "cmpl-1", "object": "text_completion", "model": given["model"], "choices": [choice]}
        usage = {"prompt_tokens": 40, "completion_tokens": 9, "total_tokens": 49}
        return Response(orjson.dumps({**body, "usage": usage}), behaviour["status"], media_type="application/json")

    return app


class Transports:
    """Hands the application its connection, which uvicorn keeps to itself: for breaking it."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            scope["transport_of_this_request"] = receive.__self__.transport
        await self._app(scope, receive, send)


def main() -> None:
    listening = socket.create_server(("127.0.0.1", int(sys.argv[1]) if sys.argv[1:] else 0))
    print(orjson.dumps({"vllm": f"http://127.0.0.1:{listening.getsockname()[1]}"}).decode(), flush=True)
    config = uvicorn.Config(Transports(create_app()), log_level="warning", lifespan="off", access_log=False)
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main()
