"""Small inputs of trainings: passages, and chats as the convert stage writes them."""

from pathlib import Path
from typing import Any

import orjson

from qinglan.files.files import dump_line
from qinglan.rag.contract import Passage
from tests.models.tiny_rewriter import SYSTEM

TERMS = ("每日服用频次", "单次推荐用量", "贮藏条件要求", "保质期限说明")


def knowledge_base(path: Path, passages: int) -> Path:
    lines = [
        Passage(
            id=f"k{number}",
            title=f"虾青素{number}号 {TERMS[number % 4]}",
            content=f"虾青素{number}号随餐服用。常见问法：一天吃几次。",
        )
        for number in range(passages)
    ]
    path.write_bytes(b"".join(map(dump_line, lines)))
    return path


def chat(number: int, **changes: Any) -> dict[str, Any]:
    """One chat row; `answer`, `tenant` and `system` can be others."""
    answer = changes.get("answer", f"虾青素软胶囊 {TERMS[number % 4]}")
    question = (
        f"原始查询: {'一天吃几次' if number % 2 else '要用多少'}\n历史摘要: 用户正在了解虾青素{number}\n\n请改写。"
    )
    return {
        "messages": [
            {"role": "system", "content": changes.get("system", SYSTEM)},
            {"role": "user", "content": question},
            {"role": "assistant", "content": answer},
        ],
        "metadata": {"id": str(number), "tenant_id": changes.get("tenant", "fivedoctors")},
    }


def chats(folder: Path, train: int = 48, dev: int = 16) -> Path:
    """train.jsonl and dev.jsonl."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, count in (("train", train), ("dev", dev)):
        write_chats(folder / f"{name}.jsonl", [chat(number) for number in range(count)])
    return folder


def write_chats(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    return path
