"""A reranker over HTTP in the protocols of vLLM and TEI. Its score is the share of a text's terms in a document."""

import asyncio
from typing import Any, Literal

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response

from qinglan.text.text import search_terms, term_coverage

Fault = Literal["", "limited", "broken", "html", "nan", "missing", "twice", "stranger"]


class FakeReranker:
    """Answers with a fault while `fault` is set; only for texts that contain `faulty_text`, if that is set too."""

    def __init__(self, model: str = "overlap", latency: float = 0.0, max_batch: int = 32, fault: Fault = "") -> None:
        self.model, self.latency, self.max_batch, self.fault = model, latency, max_batch, fault
        self.faulty_text = ""
        self.documents: list[int] = []
        """Number of documents in each request so far."""

        self.under_way = self.most_under_way = 0
        self.app = FastAPI()
        self.app.add_api_route("/v1/rerank", self._vllm, methods=["POST"])
        self.app.add_api_route("/rerank", self._tei, methods=["POST"])
        self.app.add_api_route("/info", self._info, methods=["GET"])

    async def _info(self) -> dict[str, Any]:
        return {"model_id": self.model, "max_client_batch_size": self.max_batch}

    async def _vllm(self, request: Request) -> Response:
        body = await request.json()
        if body["model"] != self.model:
            return JSONResponse({"error": "no such model"}, 404)
        return await self._answer(body["query"], body["documents"], "relevance_score")

    async def _tei(self, request: Request) -> Response:
        body = await request.json()
        if len(body["texts"]) > self.max_batch:
            return JSONResponse({"error": "too many texts"}, 413)
        return await self._answer(body["query"], body["texts"], "score")

    async def _answer(self, query: str, documents: list[str], score: str) -> Response:
        self.documents.append(len(documents))
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        await asyncio.sleep(self.latency)
        self.under_way -= 1
        shares = [term_coverage(query, set(search_terms(document))) for document in documents]
        rows = [{"index": at, score: share} for at, share in enumerate(shares)]
        rows.sort(key=lambda row: -float(row[score]))
        fault = self.fault if self.faulty_text in query else ""
        if fault in ("limited", "broken"):
            return JSONResponse({"error": fault}, 429 if fault == "limited" else 500)
        if fault == "html":
            return Response("<html>", media_type="text/html")
        if fault == "missing":
            rows.pop()
        elif fault in ("twice", "stranger"):
            rows[-1]["index"] = rows[0]["index"] if fault == "twice" else len(rows)
        elif fault == "nan":
            last = b'[{"index": 0, "%b": NaN}]' % score.encode()
            return Response(b'{"results": %b}' % last if score == "relevance_score" else last)
        return JSONResponse({"results": rows} if score == "relevance_score" else rows)
