"""The stand-in reranker as a process: it speaks as vLLM and Text Embeddings Inference do, refusals included."""

import subprocess
from collections.abc import Iterator
from typing import Any

import httpx
import orjson
import pytest

from tests.processes.forkserver import GATEWAY, forked

RERANK_BODY = {"query": "鱼油软胶囊", "documents": ["益生菌", "鱼油软胶囊一天吃几次"]}
TEXTS = {"query": RERANK_BODY["query"], "texts": RERANK_BODY["documents"]}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    command = forked("standins.reranker", "--port", "0", "--max-batch", "2", libraries=GATEWAY)
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        try:
            yield orjson.loads(child.stdout.readline())["reranker"]
        finally:
            child.terminate()


def post(url: str, path: str, body: Any) -> httpx.Response:
    return httpx.post(url + path, content=orjson.dumps(body), trust_env=False)


@pytest.mark.parametrize("path", ["/rerank", "/v1/rerank", "/v2/rerank"])
def test_vllms_dialect_lists_the_best_document_first(url: str, path: str) -> None:
    body = post(url, path, {"model": "overlap", **RERANK_BODY}).json()

    assert [row["index"] for row in body["results"]] == [1, 0]
    assert body["results"][0]["document"] == {"text": "鱼油软胶囊一天吃几次"}
    assert 1 > body["results"][0]["relevance_score"] > body["results"][1]["relevance_score"] > 0
    assert body["model"] == "overlap"
    assert len(post(url, path, {**RERANK_BODY, "top_n": 1}).json()["results"]) == 1


def test_teis_dialect_gives_sigmoids_or_what_is_before_them(url: str) -> None:
    plain, raw = post(url, "/rerank", TEXTS).json(), post(url, "/rerank", {**TEXTS, "raw_scores": True}).json()

    assert [row["index"] for row in plain] == [row["index"] for row in raw] == [1, 0]
    assert set(plain[0]) == {"index", "score"}
    assert 0 < plain[1]["score"] < plain[0]["score"] < 1 < raw[0]["score"]


def test_tei_says_what_it_serves_and_how_much_it_takes_and_refuses_more(url: str) -> None:
    info = httpx.get(f"{url}/info", trust_env=False).json()
    refused = post(url, "/rerank", {**TEXTS, "texts": ["a", "b", "c"]})

    assert (info["model_id"], info["max_client_batch_size"]) == ("overlap", 2)
    assert refused.status_code == 413
    assert refused.json()["error_type"] == "validation"


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/rerank", {**RERANK_BODY, "model": "other"}, 404),
        ("/v1/rerank", {"query": "q"}, 400),
        ("/v1/rerank", {"query": "q", "documents": []}, 400),
        ("/v1/rerank", [], 400),
        ("/rerank", {"query": 7, "texts": ["a"]}, 422),
        ("/rerank", {"query": "q", "texts": [7]}, 422),
    ],
)
def test_a_malformed_request_is_refused_as_each_server_would(url: str, path: str, body: Any, status: int) -> None:
    assert post(url, path, body).status_code == status


def test_a_fault_that_nobody_knows_stops_the_start() -> None:
    command = forked("standins.reranker", "--fault", "fire", libraries=GATEWAY)
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300)

    assert ended.returncode == 2
    assert "fault" in ended.stderr
