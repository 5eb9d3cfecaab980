"""Stand-in for a company's own RAG service: one endpoint, a token, and raw logits of a reranker as scores.

Its answers have no `snapshot`, it lists no knowledge bases, and by default it ignores `need`.
"""

import math
from collections.abc import Mapping
from random import Random
from typing import Any

import orjson
from fastapi import FastAPI, Request, Response
from starlette.requests import ClientDisconnect

from qinglan.rag.knowledge_base import searched_text
from qinglan.rag.lexical.index import Index
from qinglan.text.text import search_terms, term_coverage
from serving.http_server import client_disconnected
from standins.company_rag.behaviour import Behaviour

SHARPNESS, MIDDLE = 14.0, 0.45
"""Parameters of a score's log-odds: SHARPNESS x (share of the query's character pairs in the passage - MIDDLE)."""

OWN_REWRITE = "{query} 产品说明"
"""Template of the service's own rewrite, for a request without a rewrite."""


class CompanyRag:
    """State of the service: its knowledge bases by tenant, and the request bodies that it has received."""

    def __init__(self, indexes: Mapping[str, Index], behaviour: Behaviour) -> None:
        self.behaviour, self._indexes = behaviour, indexes
        self.received: list[dict[str, Any]] = []
        self._luck = Random(0)

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        self.received.append(body)
        flat = self.behaviour.layout == "flat"
        query = str(body["q"] if flat else body["query"])
        if self.behaviour.rewrites and body.get("rewritten_query"):
            query = str(body["rewritten_query"])
        elif not flat:
            query = OWN_REWRITE.format(query=query)
        hits = self._search(query, body, int(body.get("size", 5) if flat else body.get("top_k", 5)))
        if self._luck.random() < self.behaviour.restless:
            self._luck.shuffle(hits)
        if flat:
            docs = [{"doc_id": hit["id"], "text": hit["content"], "score": hit["score"]} for hit in hits]
            return {"status": 0, "result": {"total": len(docs), "docs": docs}}
        return self._planned(query, hits)

    def _search(self, query: str, body: Mapping[str, Any], top: int) -> list[dict[str, Any]]:
        tenant = str(body.get("tenant_id", ""))
        index = self._indexes.get(tenant) or next(iter(self._indexes.values()))
        scored = str(body["need"]) if self.behaviour.needs and body.get("need") else query
        passages = [index.passage(hit.number) for hit in index.search(query, top)]
        return [
            {"id": passage.id, "content": passage.content, "score": self._score(scored, searched_text(passage))}
            for passage in passages
        ]

    def _score(self, query: str, text: str) -> float:
        logit = SHARPNESS * (term_coverage(query, set(search_terms(text))) - MIDDLE)
        return round(logit if self.behaviour.scores == "logit" else 1 / (1 + math.exp(-logit)), 4)

    def _planned(self, query: str, hits: list[dict[str, Any]]) -> dict[str, Any]:
        recall = [{"id": hit["id"], "content": hit["content"], "reranker_score": hit["score"]} for hit in hits]
        if self.behaviour.fields == "score":
            recall = [{"reranker_score": hit["score"]} for hit in hits]
        data: dict[str, Any] = {"rewritten_query": query, "recall": recall}
        if self.behaviour.needs:
            data["scored_against"] = "need"
        return {"code": 200, "msg": "success", "data": data}


def create_app(service: CompanyRag) -> FastAPI:
    app = FastAPI(title="Qinglan stand-in for a company's RAG service")

    async def ask(request: Request) -> Response:
        token = service.behaviour.token
        if token and request.headers.get("authorization") != f"Bearer {token}":
            return _json({"detail": "Not authenticated"}, 401)
        try:
            body = orjson.loads(await request.body())
        except orjson.JSONDecodeError as error:
            return _json({"detail": f"The body is not JSON: {error}."}, 400)
        query = "q" if service.behaviour.layout == "flat" else "query"
        if not isinstance(body, dict) or not isinstance(body.get(query), str):
            return _json({"detail": "A query belongs here."}, 422)
        return _json(service.answer(body))

    app.add_exception_handler(ClientDisconnect, client_disconnected)
    app.add_route(service.behaviour.path, ask, ["POST"])

    @app.get("/healthz")
    @app.get("/readyz")
    async def ready() -> dict[str, str]:
        return {"status": "ok"}

    return app


def _json(value: Any, status: int = 200) -> Response:
    return Response(orjson.dumps(value), status, media_type="application/json")
