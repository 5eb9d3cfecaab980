"""Small servers that answer JSON at once or after a set time, for timing those who call them."""

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

HEADERS = [(b"content-type", b"application/json"), (b"x-qinglan-call", b"k" * 64), (b"x-qinglan-cached", b"0")]

Answer = Callable[[str, bytes], Any]


def serve(answer: Answer, seconds: float = 0.0) -> None:
    """Answer every path with answer(path, body) until terminated; POSTs wait the seconds first."""
    import uvicorn

    async def app(scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        if scope["method"] == "POST" and seconds:
            await asyncio.sleep(seconds)
        await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        await send({"type": "http.response.body", "body": json.dumps(answer(scope["path"], body)).encode()})

    listener = socket.create_server(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    config = uvicorn.Config(app, log_level="warning", lifespan="off", access_log=False)
    uvicorn.Server(config).run(sockets=[listener])


@contextmanager
def started(module: str, *arguments: str) -> Iterator[str]:
    """The URL of such a server in a process of its own."""
    process = subprocess.Popen([sys.executable, "-m", module, *arguments], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        if not (url := process.stdout.readline().strip()):
            raise RuntimeError(f"{module} ended without an address; its own lines above say why")
        yield url
    finally:
        process.terminate()
        process.wait()
