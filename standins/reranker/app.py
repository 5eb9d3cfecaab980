"""Stand-in for a reranker, with two HTTP protocols and with faults. It scores the share of common character pairs.

POST /v1/rerank (and /rerank with `documents`)    protocol of vLLM, Jina and Cohere
POST /rerank with `texts`, GET /info              protocol of Text Embeddings Inference
GET /stats                                        number of documents in each request so far
"""

import asyncio
import math
from random import Random
from typing import Any

import orjson
from fastapi import FastAPI, Request, Response
from starlette.requests import ClientDisconnect

from qinglan.files.files import sha256_text
from qinglan.text.text import search_terms, term_coverage
from serving.http_server import client_disconnected
from standins.reranker.behaviour import Behaviour

JSON = "application/json"
RankedScores = list[tuple[int, float]]
"""Index and score of each document, best first, as in both protocols."""


class FakeReranker:
    """State of the stand-in: its behaviour, which a test may change between requests, and the requests so far."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.documents: list[int] = []
        """Number of documents in each request so far."""

        self.under_way = self.most_under_way = 0

    async def fault(self, query: str, documents: list[str]) -> str:
        """Wait for the latency, then return the fault for this request; "" if it has none."""
        self.documents.append(len(documents))
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            await asyncio.sleep(self.behaviour.latency)
        finally:
            self.under_way -= 1
        unlucky = Random(sha256_text(query, *documents)).random() < self.behaviour.error_rate
        return self.behaviour.fault if unlucky else ""

    def ranked(self, query: str, documents: list[str], raw: bool) -> RankedScores:
        scores = [log_odds(query, document, self.behaviour.sharpness) for document in documents]
        if not raw:
            scores = [1 / (1 + math.exp(-score)) for score in scores]
        return sorted(enumerate(scores), key=lambda pair: -pair[1])


def log_odds(query: str, document: str, sharpness: float) -> float:
    """Log-odds that grow with the share of the query's character pairs that the document contains."""
    return sharpness * (term_coverage(query, set(search_terms(document))) - 0.5)


def apply_fault(rows: list[dict[str, Any]], fault: str, score: str) -> list[dict[str, Any]]:
    """Change the rows of an answer as a server with this fault would."""
    last = rows[-1]
    if fault == "missing":
        return rows[:-1]
    changes: dict[str, dict[str, Any]] = {
        "twice": {"index": rows[0]["index"]}, "stranger": {"index": len(rows)}, "text": {score: "high"},
        "nan": {score: math.nan},
    }  # fmt: skip
    return [*rows[:-1], {**last, **changes[fault]}] if fault in changes else rows


def create_app(stand_in: FakeReranker) -> FastAPI:
    app = FastAPI(title="Qinglan stand-in reranker")

    async def rerank(request: Request) -> Response:
        try:
            body = orjson.loads(await request.body())
        except orjson.JSONDecodeError as error:
            return _error(400, f"The body is not JSON: {error}.", "invalid_request_error")
        if isinstance(body, dict) and "texts" in body and not request.url.path.startswith("/v"):
            return await _tei(stand_in, body)
        return await _vllm(stand_in, body)

    app.add_exception_handler(ClientDisconnect, client_disconnected)
    for path in ("/rerank", "/v1/rerank", "/v2/rerank"):
        app.add_route(path, rerank, ["POST"])

    @app.get("/info")
    async def info() -> dict[str, Any]:
        behaviour = stand_in.behaviour
        return {
            "model_id": behaviour.model, "model_type": {"reranker": {"id2label": {"0": "LABEL_0"}}},
            "max_client_batch_size": behaviour.max_batch, "max_input_length": 8192,
        }  # fmt: skip

    @app.get("/stats")
    async def stats() -> dict[str, Any]:
        return {"documents": stand_in.documents, "most_under_way": stand_in.most_under_way}

    @app.get("/health")
    async def health() -> Response:
        return Response()

    return app


async def _vllm(stand_in: FakeReranker, request: Any) -> Response:
    if not _has_query_and(request, "documents"):
        return _error(400, "query and documents belong here.", "BadRequestError")
    if request.get("model", stand_in.behaviour.model) != stand_in.behaviour.model:
        return _error(404, f"The model `{request['model']}` does not exist.", "NotFoundError")
    query, documents = request["query"], request["documents"]
    if failed := _status_of(fault := await stand_in.fault(query, documents)):
        return _error(failed, "The server cannot answer now.", "InternalServerError")
    raw = request.get("use_activation") is False
    rows = [
        {"index": at, "document": {"text": documents[at]}, "relevance_score": score}
        for at, score in stand_in.ranked(query, documents, raw)
    ]
    results = apply_fault(rows, fault, "relevance_score")[: request.get("top_n") or None]
    body = {"id": "rerank-0", "model": stand_in.behaviour.model, "usage": {"total_tokens": 0}, "results": results}
    return _answer(body, fault)


async def _tei(stand_in: FakeReranker, body: Any) -> Response:
    if not _has_query_and(body, "texts"):
        return _tei_error(422, "query and texts belong here", "validation")
    query, texts = body["query"], body["texts"]
    if len(texts) > stand_in.behaviour.max_batch:
        allowed = stand_in.behaviour.max_batch
        return _tei_error(413, f"batch size {len(texts)} > maximum allowed batch size {allowed}", "validation")
    if failed := _status_of(fault := await stand_in.fault(query, texts)):
        return _tei_error(*((429, "Model is overloaded", "overloaded") if failed == 429 else TEI_BACKEND_ERROR))
    rows: list[dict[str, Any]] = [
        {"index": at, "score": score} for at, score in stand_in.ranked(query, texts, bool(body.get("raw_scores")))
    ]
    return _answer(apply_fault(rows, fault, "score"), fault)


TEI_BACKEND_ERROR = (424, "Inference failed", "backend")


def _has_query_and(body: Any, name: str) -> bool:
    if not isinstance(body, dict) or not isinstance(body.get("query"), str):
        return False
    documents = body.get(name)
    return (
        isinstance(documents, list) and bool(documents) and all(isinstance(document, str) for document in documents)
    )


def _status_of(fault: str) -> int:
    return {"limited": 429, "broken": 500}.get(fault, 0)


def _answer(body: Any, fault: str) -> Response:
    if fault == "html":
        return Response(b"<html><body><h1>Bad gateway</h1></body></html>", media_type="text/html")
    content = orjson.dumps(body)  # orjson writes null for NaN; other servers write NaN
    return Response(content.replace(b":null", b":NaN") if fault == "nan" else content, media_type=JSON)


def _error(status: int, message: str, kind: str) -> Response:
    error = {"message": message, "type": kind, "param": None, "code": status}
    return Response(orjson.dumps({"error": error}), status, media_type=JSON)


def _tei_error(status: int, message: str, kind: str) -> Response:
    return Response(orjson.dumps({"error": message, "error_type": kind}), status, media_type=JSON)
