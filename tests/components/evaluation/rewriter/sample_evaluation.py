"""A small world to evaluate in: passages, locked questions, a RAG service that matches words, and two judges."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from components.evaluation.rewriter import stage
from components.evaluation.rewriter.config import EvaluateConfig
from components.evaluation.rewriter.score_systems import fixed_queries, score_all
from components.evaluation.rewriter.student_timing import StudentOutput
from qinglan.evaluation.gates.evaluation_file import Origins
from qinglan.files.files import dump_line, sha256_file
from qinglan.rag.contract import Passage
from qinglan.rag.retrieval import RetrievalConfig
from qinglan.rows.rows import Retrieval, ValidatedRewrite
from qinglan.text.text import search_terms
from standins.teacher.app import create_app
from standins.teacher.config import Behaviour
from standins.teacher.relevance_judge import ErrorRates
from standins.teacher.stand_in_backend import StandInBackend
from tests.models.validated_rows import validated
from tests.servers.echo_servers import GatewayProcess, gateway_config, running
from tests.servers.scripted_rag import Rag

PRODUCTS = ("虾青素软胶囊", "鱼油软胶囊", "益生菌冲饮粉", "叶黄素咀嚼片")
TERMS = {"每日服用频次": "一天吃几次", "贮藏条件要求": "要放冰箱吗", "退换货政策": "买错了能退不"}
NOTHING = Retrieval(query="q", hits=(), top1_score=0.0, count=0)
CONFIG = EvaluateConfig(
    draws=1_000, retrieval=RetrievalConfig(score_threshold=0.0), agreement_rows=12, examples=3, blind_rows=8
)
NOT_ALIKE = {"rows": 40, "same": 0, "alike": 0, "examples": []}
ORIGINS = Origins(
    {"threshold": 0.8, "parts": {"sft": NOT_ALIKE, "ppo": NOT_ALIKE}},
    {
        "test": "1" * 64, "predictions": "2" * 64, "knowledge_bases": ["3" * 64],
        "models": {"sft": "4" * 64, "rl": "5" * 64}, "training": {"sft": "6" * 64, "ppo": "7" * 64},
        "parents": {
            "sft": {"base_model": "8" * 64, "train": "9" * 64, "dev": "a" * 64},
            "rl": {"base_model": "8" * 64, "sft_model": "4" * 64, "train": "b" * 64, "dev": "c" * 64},
        },
        "code": {"version": "0"},
    },
)  # fmt: skip
"""Origins of a clean test, with every digest."""

TENANTS = ("fivedoctors", "chengla")
HOSTILE = "<script>alert('问')</script>一天吃几次"


def write_knowledge_base(path: Path) -> Path:
    passages = [
        Passage(id=f"{product}/{term}", title=f"{product} {term}", content=f"{product}请看标签。常见问法：{asks}。")
        for product in PRODUCTS
        for term, asks in TERMS.items()
    ]
    path.write_bytes(b"".join(map(dump_line, passages)))
    return path


def locked_rows(snapshot: str, tenants: tuple[str, ...] = ("fivedoctors",)) -> list[ValidatedRewrite]:
    """A conversation per tenant and product, a turn per term; the teacher forgets the product in the last turn."""
    return [
        locked_row(snapshot, tenant, product, turn)
        for tenant in tenants
        for product in PRODUCTS
        for turn in range(len(TERMS))
    ]


def locked_row(snapshot: str, tenant: str, product: str, turn: int) -> ValidatedRewrite:
    term, asks = list(TERMS.items())[turn]
    forgets = turn == len(TERMS) - 1
    return validated(
        id=f"{tenant}-{product}-{turn}", tenant_id=tenant, conversation_id=product,
        question=HOSTILE if (product, turn) == (PRODUCTS[0], 0) else asks, history_summary=f"客服已介绍{product}",
        need=f"{product}{asks}", gold=(f"{product}/{term}",), split="test", snapshot=snapshot,
        rewritten_query=asks if forgets else f"{product} {term}", plain=NOTHING, rewritten=NOTHING,
    )  # fmt: skip


class WordRag(Rag):
    """A RAG service that ranks passages by the character pairs they share with the query."""

    def __init__(self, knowledge_base: Path) -> None:
        super().__init__(self.near, sha256_file(knowledge_base))
        self.passages = [Passage.model_validate_json(line) for line in knowledge_base.read_bytes().splitlines()]

    def near(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        result = sorted(self.passages, key=lambda passage: -overlap(request["rewritten_query"], passage))
        recall = [
            {
                "id": passage.id,
                "content": passage.content,
                "reranker_score": overlap(request["need"], passage),
                "metadata": {"title": passage.title},
            }
            for passage in result
            if overlap(request["rewritten_query"], passage)
        ]
        return recall[: request["top_k"]]


def overlap(text: str, passage: Passage) -> float:
    terms = set(search_terms(text))
    return len(terms & set(search_terms(f"{passage.title}\n{passage.content}"))) / len(terms) if terms else 0.0


def judges(knowledge_base: Path) -> Any:
    """A server with the stand-in's judge and its examiner, who know what the questions mean and never err."""
    bases, words = {"fivedoctors": knowledge_base}, knowledge_base.with_name("words.yaml")
    aspects = {term: {"asks": [asks]} for term, asks in TERMS.items()}
    words.write_text(json.dumps({"aspects": aspects}, ensure_ascii=False), encoding="utf-8")
    return create_app(StandInBackend(bases, {"fivedoctors": words}, rates=ErrorRates(0.0, 0.0)), Behaviour())


def models_of(url: str) -> dict[str, Any]:
    """A gateway's settings for those two."""
    price = {"input": 1.0, "cached_input": 0.1, "output": 10.0, "as_of": "2026-11-01"}
    model = {"base_url": f"{url}/v1", "price": price, "max_output_tokens": 400}
    return {
        "model": {"model": "fivedoctors"},
        "judge": {**model, "model": "fivedoctors"},
        "examiner": {**model, "model": "fivedoctors-examiner"},
    }


class Evaluated(NamedTuple):
    value: dict[str, Any]
    predictions: Path
    rag: WordRag


@contextmanager
def gateway(folder: Path, knowledge_base: Path, rag: Any) -> Iterator[str]:
    with running(judges(knowledge_base)) as teacher, running(rag) as rag_url:
        process = GatewayProcess(gateway_config(teacher, rag_url, **models_of(teacher)), folder)
        try:
            yield process.url()
        finally:
            process.stop()


def writing(texts: list[str]) -> StudentOutput:
    return StudentOutput(texts, 1, 2.0, [0.01, 0.02, 0.04], 0, "CPU, 1 of 2 cores")


def titles(rows: Sequence[ValidatedRewrite]) -> list[str]:
    """Rewrites that name product and term of each row: its passage comes first."""
    return [row.gold[0].replace("/", " ") for row in rows]


def evaluate_rows(
    folder: Path,
    rows: Sequence[ValidatedRewrite],
    rl: list[str],
    sft: list[str] | None = None,
    config: EvaluateConfig = CONFIG,
    slices: Mapping[str, Sequence[str]] | None = None,
    kinds: Sequence[Sequence[str]] | None = None,
) -> Evaluated:
    """Score the rows before a real gateway and RAG service, and build evaluation.json; SFT writes as the teacher."""
    rag = WordRag(folder / "kb.jsonl")
    students = {"sft": writing(sft or [row.rewritten_query for row in rows]), "rl": writing(rl)}
    texts = {**fixed_queries(rows), **{name: student.texts for name, student in students.items()}}
    predictions = folder / "predictions.jsonl"
    with gateway(folder, folder / "kb.jsonl", rag) as url:
        scored = score_all(rows, texts, slices or {}, predictions, config, url, by=config.gate.by)
    kinds = kinds or [("complete",)] * len(rows)
    evaluation = stage.build_evaluation(rows, kinds, slices or {}, students, scored, ORIGINS, config)
    return Evaluated(orjson.loads(orjson.dumps(evaluation)), predictions, rag)
