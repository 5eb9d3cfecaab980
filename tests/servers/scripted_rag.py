"""A RAG service for tests: the contract over a real socket, with what is found decided by the test."""

from collections.abc import Callable
from typing import Any

import orjson

from qinglan.rag.contract import RAG_PATH


class Rag:
    """A RAG service that answers each query as told."""

    def __init__(self, search: Callable[[dict[str, Any]], list[dict[str, Any]]], snapshot: str) -> None:
        self.search, self.snapshot = search, snapshot
        self.requests: list[dict[str, Any]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        status, answer = (200, self.answer(orjson.loads(body))) if scope["path"] == RAG_PATH else (404, {})
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": orjson.dumps(answer)})

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        self.requests.append(request)
        data = {
            "rewritten_query": request["rewritten_query"], "recall": self.search(request), "scored_against": "need",
            "rewriter": "request", "snapshot": self.snapshot,
        }  # fmt: skip
        return {"code": 200, "msg": "success", "data": data}
