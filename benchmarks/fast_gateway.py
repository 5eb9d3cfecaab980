"""A gateway that answers everything at once: `python -m benchmarks.fast_gateway`. For the memory of stages."""

import json
import socket
from typing import Any

import uvicorn

from benchmarks.slow_rag import answer

COMPLETION = {
    "id": "c", "object": "chat.completion", "created": 0, "model": "standin",
    "choices": [
        {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "虾青素 每日服用频次"}}
    ],
    "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110},
}  # fmt: skip


async def app(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] != "http":
        return
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    path = scope["path"]
    reply = COMPLETION if path == "/v1/chat/completions" else {} if path.startswith("/v1") else answer(path, body)
    headers = [(b"content-type", b"application/json"), (b"x-qinglan-call", b"k" * 64), (b"x-qinglan-cached", b"0")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(reply).encode()})


def main() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    print(json.dumps({"gateway": f"http://127.0.0.1:{listener.getsockname()[1]}"}), flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off", access_log=False)).run(sockets=[listener])


if __name__ == "__main__":
    main()
