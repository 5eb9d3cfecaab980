"""A company's RAG service for tests: the stand-in on a few passages, over a real socket."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson

from qinglan.rag.lexical.index import Index, build_index
from standins.company_rag.app import CompanyRag, create_app
from standins.company_rag.behaviour import Behaviour
from tests.servers.echo_servers import running

PASSAGES = {
    "k1": "虾青素软胶囊每日服用一次，每次一粒，随餐服用。",
    "k2": "益生菌冻干粉请放冰箱冷藏，开封后一个月内吃完。",
    "k3": "胶原蛋白肽适合成年人，孕妇请先咨询医生。",
    "k4": "鱼油软胶囊每日服用两次，放在阴凉干燥的地方。",
    "k5": "儿童维生素软糖每日两粒，三岁以上可以吃。",
}


def write_passages(folder: Path) -> Path:
    path = folder / "kb.jsonl"
    lines = ({"id": name, "title": "", "content": text} for name, text in PASSAGES.items())
    path.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
    return path


@contextmanager
def company_rag(folder: Path, **behaviour: Any) -> Iterator[tuple[str, CompanyRag]]:
    """The address of the service, and the service, which holds what it was sent."""
    index = Index.open(build_index(write_passages(folder), folder / "index", "acme"))
    service = CompanyRag({"acme": index}, Behaviour(**behaviour))
    with running(create_app(service)) as url:
        yield url, service
