"""Two tenants' knowledge bases, engines over them, and servers that a test starts and stops itself."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
import uvicorn

from qinglan.rag.contract import RAG_PATH, Passage
from qinglan.rag.lexical.index import Index, build_index
from serving.rag.engine import TantivyEngine
from serving.rag.rerank.lexical_reranker import DEFAULT_RERANKER

ITEMS = {
    "fivedoctors": ["虾青素软胶囊", "胶原蛋白肽饮", "鱼油软胶囊", "益生菌冻干粉", "叶黄素咀嚼片", "辅酶软胶囊"],
    "chengla": ["考研英语基础班", "考研数学强化班", "法考写作冲刺班", "雅思逻辑基础班"],
}
ASPECTS = {
    "每日服用频次": "一天吃几次；每天要吃几回",
    "适用人群范围": "老人能不能吃；小孩可以用吗",
    "贮藏温度条件": "要不要放冰箱；开盖以后怎么放",
    "不良反应提示": "有没有副作用；会不会过敏",
    "退换货政策": "不想要了怎么办；拆开还能退吗",
}
Running = Callable[[Any], AbstractContextManager[str]]


def passages(tenant: str) -> list[Passage]:
    return [
        Passage(
            id=f"{tenant}-{i}-{j}", title=f"{item} {aspect}", metadata={"item": item},
            content=f"{item}的{aspect}以标签为准。常见问法：{asks}。",
        )
        for i, item in enumerate(ITEMS[tenant])
        for j, (aspect, asks) in enumerate(ASPECTS.items())
    ]  # fmt: skip


@pytest.fixture(scope="session")
def kbs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Each tenant's knowledge base as a file."""
    folder = tmp_path_factory.mktemp("kbs")
    for tenant in ITEMS:
        lines = (orjson.dumps(passage.model_dump()) + b"\n" for passage in passages(tenant))
        (folder / f"{tenant}.jsonl").write_bytes(b"".join(lines))
    return {tenant: folder / f"{tenant}.jsonl" for tenant in ITEMS}


@pytest.fixture(scope="session")
def engines(kbs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], TantivyEngine]:
    root = tmp_path_factory.mktemp("indexes")
    return {
        (tenant, "default"): TantivyEngine(Index.open(build_index(path, root, tenant)), DEFAULT_RERANKER)
        for tenant, path in kbs.items()
    }


@contextmanager
def serving(app: Any) -> Iterator[str]:
    """Serve an ASGI application on a free port of loopback; yields its URL."""
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="on"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        deadline = time.monotonic() + 120
        while not server.started and time.monotonic() < deadline:
            time.sleep(0.005)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        listening.close()


@pytest.fixture(scope="session")
def running() -> Running:
    return serving


@pytest.fixture
def ask() -> Callable[..., httpx.Response]:
    """One question to a service; fields replace or add to the usual ones."""

    def once(url: str, **fields: Any) -> httpx.Response:
        usual = {"query": "虾青素软胶囊一天吃几次", "tenant_id": "fivedoctors", "score_threshold": 0.0}
        return httpx.post(
            url + RAG_PATH, content=orjson.dumps({**usual, **fields}), headers=JSON, trust_env=False, verify=False
        )

    return once


JSON = {"content-type": "application/json"}
