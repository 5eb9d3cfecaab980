"""A gateway with a judge and a RAG behind it that a test can watch, slow down or take away."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import orjson
import pytest

from qinglan.files.files import atomic_write
from qinglan.rag.retrieval import RetrievalConfig
from qinglan.reward.config import RewardConfig
from qinglan.reward.reward_function import close
from tests.servers.echo_servers import completion, gateway, gateway_config, running

NEED, GOOD, TEACHER, QUESTION = (
    "虾青素软胶囊一天吃几次",
    "虾青素软胶囊 每日服用频次",
    "虾青素软胶囊 一天吃几次",
    "一天吃几次",
)
ANSWER = {GOOD: ["gold", "b", "c"], TEACHER: ["b", "gold", "c"], QUESTION: ["c", "b"], NEED: ["b", "gold"]}
"""Ids that each query retrieves; any other query finds nothing."""

RATED = {GOOD: 4.5, TEACHER: 4.0, NEED: 4.2}
"""The judge's 综合得分; any other text gets 1."""


class Services:
    """The judge's and the RAG's answers, and the requests to them."""

    def __init__(self) -> None:
        self.rag_status = self.judge_status = 200
        self.judgement: Callable[[str], Any] = lambda rewrite: {"综合得分": RATED.get(rewrite, 1.0), "评分理由": "。"}
        self.snapshot, self.reranker = "s" * 64, "r" * 64
        self.delay: Callable[[str], float] = lambda text: 0.0
        self.retrieved: list[dict[str, Any]] = []
        self.judged: list[str] = []

    def answer(self, path: str, body: bytes) -> tuple[int, Any]:
        if path == "/api/knowledge_bases":
            base = {"tenant_id": "fivedoctors", "kb_name": "default", "snapshot": self.snapshot, "passages": 3}
            return self.rag_status, {"knowledge_bases": [base]}
        return self._recall(orjson.loads(body)) if path.startswith("/api") else self._judge(orjson.loads(body))

    def _recall(self, request: dict[str, Any]) -> tuple[int, Any]:
        self.retrieved.append(request)
        query = request["rewritten_query"]
        recall = [
            {"id": id, "content": f"{id}的内容。虾青素软胶囊请看标签。", "reranker_score": 0.9 - at / 10,
             "query_score": 0.8 - at / 10, "metadata": {"title": GOOD if id == "gold" else id}}
            for at, id in enumerate(ANSWER.get(query, []))
        ]  # fmt: skip
        against = "need" if "need" in request else "query"
        data = {"rewritten_query": query, "recall": recall, "scored_against": against, "snapshot": self.snapshot,
                "reranker_digest": self.reranker}  # fmt: skip
        return self.rag_status, {"code": 200, "msg": "success", "data": data}

    def _judge(self, request: dict[str, Any]) -> tuple[int, Any]:
        rewrite = orjson.loads(request["messages"][-1]["content"])["改写"]
        self.judged.append(rewrite)
        content = self.judgement(rewrite)
        return self.judge_status, orjson.loads(
            completion(content if isinstance(content, str) else orjson.dumps(content).decode())
        )

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        status, content = self.answer(scope["path"], body)
        await asyncio.sleep(self.delay((self.judged or [""])[-1]))
        await send(
            {"type": "http.response.start", "status": status, "headers": [(b"content-type", b"application/json")]}
        )
        await send({"type": "http.response.body", "body": orjson.dumps(content)})


@pytest.fixture
def services() -> Services:
    return Services()


class House:
    """A run: services, a gateway before them, and a folder for the reward's settings."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.folder = url, folder

    def run(self, config: RewardConfig, work: Callable[[str], Any], **changes: Any) -> Any:
        """The result of an asynchronous `work`, which gets the path of its settings file."""

        async def inside() -> Any:
            async with gateway(gateway_config(self.url, self.url, **changes), self.folder) as base:
                settings = {"gateway_url": base, "config": config.model_dump(), "folder": str(self.folder)}
                with atomic_write(self.folder / "reward.json") as partial:
                    partial.write_bytes(orjson.dumps(settings))
                try:
                    return await work(str(self.folder / "reward.json"))
                finally:  # a client that is left open is complained about in whatever test is under way then
                    await close()

        return asyncio.run(inside())


@pytest.fixture
def house(services: Services, tmp_path: Path) -> Iterator[House]:
    with ExitStack() as stack:
        yield House(stack.enter_context(running(services)), tmp_path)


def validated(query: str) -> dict[str, Any]:
    """Retrieval of a query in validation by the services below."""
    hits = [
        {"id": id, "reranker_score": 0.9 - at / 10, "query_score": 0.8 - at / 10}
        for at, id in enumerate(ANSWER.get(query, []))
    ]
    return {"query": query, "hits": hits, "top1_score": 0.9, "count": len(hits), "gold_rank": None}


def extra_info(**changes: Any) -> dict[str, Any]:
    """Fields of a row that verl passes, with some that the reward does not use."""
    return {
        "id": "r1", "conversation_id": "c1", "tenant_id": "fivedoctors", "split": "train", "question": QUESTION,
        "user_profile": "", "history_summary": "咨询虾青素软胶囊", "need": NEED, "gold": ["gold"],
        "snapshot": "s" * 64, "accepted": True, "teacher_rewrite": TEACHER, "num_turns": None,
        "teacher_retrieval": validated(TEACHER), "plain_retrieval": validated(QUESTION), "scored_against": "need",
        "reranker": "r" * 64, "retrieved_with": RetrievalConfig().model_dump(), **changes,
    }  # fmt: skip
