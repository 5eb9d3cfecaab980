"""A benchmark in BEIR's layout, small enough to write in a test, and rewriters of it on loopback."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

PRODUCTS = ("虾青素软胶囊", "鱼油软胶囊", "益生菌冲饮粉", "叶黄素咀嚼片")
TERMS = {"每日服用频次": "一天吃几次", "贮藏条件要求": "要放冰箱吗", "退换货政策": "买错了能退不"}

Lines = Sequence[Mapping[str, Any]]


def write_lines(path: Path, lines: Lines) -> None:
    path.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))


def write_benchmark(folder: Path, with_rewrites: bool = True) -> Path:
    """A conversation for each product; the right passage has grade 2, another of the product grade 1."""
    (folder / "qrels").mkdir(parents=True)
    corpus, queries, conversations, judged = [], [], [], ["query-id\tcorpus-id\tscore"]
    for number, product in enumerate(PRODUCTS):
        for turn, (term, phrase) in enumerate(TERMS.items()):
            name = f"{number}-{turn}"
            corpus.append({"_id": f"p{name}", "title": f"{product} {term}", "text": f"{product}的{term}，请看标签。"})
            queries.append({"_id": f"q{name}", "text": f"|user|: {phrase}", "metadata": {}})
            turns = [{"role": "user", "content": f"{product}怎么样"}, {"role": "assistant", "content": "很好。"}]
            rewrite = {"rewrite": f"{product}{phrase}"} if with_rewrites else {}
            conversations.append({"_id": f"q{name}", "conversation_id": product, "turns": turns, **rewrite})
            judged += [f"q{name}\tp{name}\t2", f"q{name}\tp{number}-{(turn + 1) % len(TERMS)}\t1"]
    write_lines(folder / "corpus.jsonl", corpus)
    write_lines(folder / "queries.jsonl", [*queries, {"_id": "unjudged", "text": "还有呢"}])
    write_lines(folder / "conversations.jsonl", conversations)
    (folder / "qrels" / "test.tsv").write_text("\n".join(judged) + "\n", encoding="utf-8")
    return folder


class RewriterApp:
    """A server of both protocols whose rewrites are a function of question and history."""

    def __init__(self, rewrite: Callable[[str], str]) -> None:
        self._rewrite = rewrite
        self.paths: list[str] = []

    async def __call__(self, scope: Any, receive: Callable[[], Any], send: Callable[[Any], Any]) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        self.paths.append(scope["path"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": orjson.dumps(self._answer(orjson.loads(body)))})

    def _answer(self, request: Any) -> dict[str, Any]:
        if "instances" in request:
            instance = request["instances"][0]
            text = self._rewrite(f"{instance['query']} {instance['history_summary']}")
            return {"predictions": [{"rewritten_query": text, "model_version": "v"}]}
        text = self._rewrite(request["messages"][-1]["content"])
        return {"model": request["model"], "choices": [{"message": {"content": text}}]}


def right_rewrite(text: str) -> str:
    """The house's words for what is asked, from question and history."""
    product = next(product for product in PRODUCTS if product in text)
    return f"{product} {next(term for term, phrase in TERMS.items() if phrase in text)}"
