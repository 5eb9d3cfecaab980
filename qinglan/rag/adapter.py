"""Translates requests and answers between the RAG contract and a company's RAG service.

adapter = RagAdapter(service, "https://rag.example.com")
sent = adapter.encode(b'{"query": ...}')             # the service's own body
body = adapter.decode(received, request)             # the contract's body, scores as probabilities
"""

import os
import re
from collections.abc import Mapping
from functools import partial
from typing import Any

import orjson

from qinglan.errors import ConfigError, DataError, OutageError
from qinglan.rag.calibration import Calibration
from qinglan.rag.contract import RAG_PATH
from qinglan.rag.service_shape import ENVIRONMENT_VARIABLE, RagService

CHECK = "`qinglan check-rag` shows what it answers and proposes the settings (docs/rag-contract.md)."
ANSWER_EXTRAS = (
    "rewriter", "rewriter_version", "fallback_reason", "reranker", "reranker_digest", "reranker_fallback_reason",
)  # fmt: skip
"""Optional fields of an answer's `data`. No setting gives their path, so they are read under the contract's names."""

OUTLINE_FIELDS, EXCERPT_CHARACTERS = 12, 120


class ServerSideError(OutageError):
    """A status of 429 or 5xx in the body of an answer with status 200."""


class RagAdapter:
    """Path and headers of one service, and the translation of its requests and answers."""

    def __init__(self, service: RagService, base_url: str) -> None:
        self._service = service
        self._unchanged = service.speaks_contract
        self.path = service.path
        self.where = f"RAG service {base_url.rstrip('/')}{service.path}"
        self._secrets: list[bytes] = []
        self.headers = {
            name: ENVIRONMENT_VARIABLE.sub(partial(self._secret, name), value)
            for name, value in service.headers.items()
        }

    @property
    def lists_knowledge_bases(self) -> bool:
        """True if the service has the contract's path. With another path it is not known where the service lists its
        knowledge bases."""
        return self.path == RAG_PATH

    def encode(self, body: bytes) -> bytes:
        if self._unchanged:
            return body
        request = orjson.loads(body)
        fields = self._service.request
        out: dict[str, Any] = {}
        for name in type(fields).model_fields:
            if path := getattr(fields, name):
                put(out, path, self._value(name, request))
        for path, value in self._service.extra_body.items():
            put(out, path, value)
        return orjson.dumps(out)

    def decode(self, answer: bytes, request: bytes, snapshot: str = "") -> bytes:
        """Translate an answer's body of status 200 to the contract. `snapshot` is used if the body names no
        snapshot."""
        if self._unchanged:
            return answer
        tenant = str(orjson.loads(request).get("tenant_id", ""))
        data = self.read(answer, tenant)
        data["snapshot"] = data.get("snapshot") or snapshot
        return orjson.dumps({"code": 200, "msg": "success", "data": data})

    def read(self, answer: bytes, tenant: str) -> dict[str, Any]:
        """Read an answer as the contract's `data`; a DataError says which part of it has an unexpected shape."""
        body, fields = self._parse(answer), self._service.answer
        code = get(body, fields.code)
        if code is not None and code != fields.success_code:
            raise self._failed(code, body)
        hits = get(body, fields.recall)
        if not isinstance(hits, list):
            raise self._wrong(f"no list at {fields.recall} (rag.answer.recall)", body)
        data = {name: get(body, f"data.{name}") for name in ANSWER_EXTRAS}
        data |= {name: get(body, getattr(fields, name)) for name in ("rewritten_query", "scored_against", "snapshot")}
        # Without `need` in the request the service cannot have scored against it, whatever its answer says.
        if not self._service.request.need:
            data["scored_against"] = "query"
        if self._service.rewrite_as_query:
            data["rewritten_query"] = None  # if the service rewrites our rewrite, that is part of its search
        calibration = self._service.calibration.get(tenant)
        data["recall"] = [self._passage(hit, calibration, body) for hit in hits]
        return {name: value for name, value in data.items() if value is not None}

    def hide_secrets(self, content: bytes) -> bytes:
        """Remove secrets from a received text. Otherwise a service that repeats a secret could bring it into our
        files."""
        for secret in self._secrets:
            content = content.replace(secret, b"[secret]")
        return content

    def _secret(self, name: str, match: re.Match[str]) -> str:
        secret = os.environ.get(match[1], "").strip()
        if not secret:
            raise ConfigError(
                f"rag.headers.{name}: the environment variable {match[1]} is not set. Set it, on a cluster in "
                "paid-api.env; nothing was sent."
            )
        if len(secret) >= 8:
            self._secrets.append(secret.encode())
        return secret

    def _value(self, name: str, request: Mapping[str, Any]) -> Any:
        if name != "score_threshold" or name not in request:
            return request.get(name)
        calibration = self._service.calibration.get(str(request.get("tenant_id", "")))
        return calibration.raw(request[name]) if calibration else request[name]

    def _parse(self, content: bytes) -> Any:
        try:
            return orjson.loads(content)
        except orjson.JSONDecodeError as error:
            start = content[:EXCERPT_CHARACTERS].decode("utf-8", "replace")
            raise DataError(
                f"{self.where}: the answer is not JSON; it begins with {start!r}. See rag.base_url, rag.path and "
                "rag.headers: a page of HTML is often a login."
            ) from error

    def _failed(self, code: Any, body: Any) -> ServerSideError | DataError:
        message = next((str(text) for name in ("msg", "message", "error") if (text := get(body, name))), "")
        text = f"{self.where}: {self._service.answer.code} is {code!r} inside status 200: {message[:200]!r}."
        status = int(code) if str(code).isascii() and str(code).isdigit() else 0  # some services write "500"
        if status == 429 or status >= 500:
            return ServerSideError(f"{text} See that the service is up, then run again.")
        return DataError(f"{text} If that is its code for success, set rag.answer.success_code: {code}.")

    def _wrong(self, problem: str, body: Any) -> DataError:
        return DataError(f"{self.where}: {problem}; the answer holds {', '.join(outline(body))}. {CHECK}")

    def _passage(self, hit: Any, calibration: Calibration | None, body: Any) -> dict[str, Any]:
        fields = self._service.answer
        if not isinstance(hit, dict):
            raise self._wrong(f"{str(hit)[:80]!r} where a passage belongs", body)
        scores = {name: get(hit, getattr(fields, path)) for name, path in SCORES.items()}
        if scores["reranker_score"] is None:
            raise self._wrong(f"a passage without {fields.score} (rag.answer.score)", body)
        mapped = {name: self._probability(value, calibration) for name, value in scores.items() if value is not None}
        metadata, passage_id = get(hit, fields.metadata), get(hit, fields.id)
        return {
            **mapped,
            "id": "" if passage_id is None else str(passage_id),
            "content": str(get(hit, fields.content) or ""),
            "metadata": metadata if isinstance(metadata, dict) else {},
        }

    def _probability(self, score: Any, calibration: Calibration | None) -> float:
        if isinstance(score, bool) or not isinstance(score, int | float):
            raise DataError(f"{self.where}: {str(score)[:80]!r} where a score belongs. {CHECK}")
        if calibration is None:
            return score  # the client refuses scores that are no probabilities
        if calibration.scale == "probability" and not 0 <= score <= 1:
            raise DataError(
                f"{self.where}: score {score} is outside [0, 1], and its calibration was fitted on probabilities. "
                "Fit it again: `qinglan check-rag`."
            )
        return calibration.probability(score)


SCORES = {"reranker_score": "score", "query_score": "query_score"}
"""Scores in the contract, each with the setting of `rag.answer` that gives the score's path in the service's
answer."""


def get(value: Any, path: str) -> Any:
    """Return the value at a dotted path; None if there is no value, or if the path is empty."""
    if not path:
        return None
    for part in path.split("."):
        if isinstance(value, dict):
            value = value.get(part)
        elif isinstance(value, list) and part.isdigit() and int(part) < len(value):
            value = value[int(part)]
        else:
            return None
    return value


def put(body: dict[str, Any], path: str, value: Any) -> None:
    """Set the value at a dotted path, and create the objects that lead there; a value of None is not set."""
    if value is None:
        return
    *parents, last = path.split(".")
    for part in parents:
        body = body.setdefault(part, {})
    body[last] = value


def outline(value: Any, path: str = "") -> list[str]:
    """List the path and type of up to 12 fields of an answer. Only the first item of a list is listed."""
    if isinstance(value, dict) and value:
        inner = [line for name, item in value.items() for line in outline(item, f"{path}.{name}" if path else name)]
    elif isinstance(value, list) and value:
        inner = outline(value[0], f"{path}[]")
    else:
        inner = [f"{path or '(the whole)'} ({type(value).__name__})"]
    return inner[:OUTLINE_FIELDS]
