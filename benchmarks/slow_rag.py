"""A RAG that answers anything after a set time: `python -m benchmarks.slow_rag SECONDS`. For timing callers."""

import asyncio
import json
import socket
import sys
from typing import Any

import uvicorn

HITS = [{"id": f"k{n}", "content": "内容" * 60, "reranker_score": 0.9 - n / 10, "metadata": {}} for n in range(5)]
SNAPSHOT = "0" * 64


def answer(path: str, body: bytes) -> dict[str, Any]:
    if path == "/api/knowledge_bases":
        base = {"tenant_id": "fivedoctors", "kb_name": "default", "snapshot": SNAPSHOT, "passages": 5}
        return {"knowledge_bases": [base]}
    request = json.loads(body)
    data = {
        "rewritten_query": request["rewritten_query"], "recall": HITS, "scored_against": "need",
        "rewriter": "request", "rewriter_version": "", "fallback_reason": "", "snapshot": "",
    }  # fmt: skip
    return {"code": 200, "msg": "success", "data": data}


def make_app(seconds: float) -> Any:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        if scope["path"] == "/api/chat/general_rag":
            await asyncio.sleep(seconds)
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": json.dumps(answer(scope["path"], body)).encode()})

    return app


def main() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    print(json.dumps({"rag": f"http://127.0.0.1:{listener.getsockname()[1]}"}), flush=True)
    config = uvicorn.Config(make_app(float(sys.argv[1])), log_level="warning", lifespan="off", access_log=False)
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
