"""python -m benchmarks.samples [SEED [VARIANT]]: how fast a sample is written, and what there is to win in its world.

Top-1 of the gold passage on dev, by slice, in the order of BM25: the question as it is, the stand-in teacher's
rewrite, and the ceiling (the item and the house's own term). The last line is JSON.
"""

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from qinglan.prompts import Message, need_messages, teacher_messages
from qinglan.rows.questions import Columns, read_questions
from qinglan.rows.rows import Question
from standins.samples import TENANTS, write_sample
from standins.samples.sample_writer import KNOWLEDGE_BASE, QUESTIONS, SLICES
from standins.teacher.extractive_backend import ExtractiveBackend
from standins.teacher.question_parser import QuestionParser

CONVERSATIONS = 1600
SEED = 100
"""Samples that people work with have small seeds; what is tuned looks at others."""

PER_SECOND = 1000
"""Conversations that a laptop should write in a second."""

TEACHER = (0.67, 0.77)
"""Range of the teacher's top-1 that leaves something to learn from and something to win."""


class Case(NamedTuple):
    question: Question
    slice: dict[str, Any]


class Measured(NamedTuple):
    conversations_per_second: float
    load_seconds: float
    rewrite_ms: float
    need_right: float
    top1: dict[str, dict[str, float]]
    """By slice: plain, teacher, ceiling, and how many rows."""


SLICES_OF: dict[str, Callable[[dict[str, Any]], bool]] = {
    "all": lambda row: True,
    "elliptic": lambda row: not row["self_contained"],
    "self_contained": lambda row: bool(row["self_contained"]),
    "gap": lambda row: bool(row["gap"]),
    "documented": lambda row: not row["gap"] and not row["self_contained"],
    "new_item": lambda row: bool(row["new_item"]),
    "new_ask": lambda row: bool(row["new_ask"]),
}


def measure(tenant: str, out: Path, seed: int, variant: str) -> Measured:
    started = time.perf_counter()
    write_sample(tenant, out, CONVERSATIONS, seed, variant)
    writing = time.perf_counter() - started
    started = time.perf_counter()
    reader = QuestionParser.load(out / KNOWLEDGE_BASE)
    loading = time.perf_counter() - started
    cases = list(dev_cases(out, tenant))
    brain = ExtractiveBackend({tenant: reader})
    started = time.perf_counter()
    rewrites = [ask(brain, tenant, teacher_messages(case.question)) for case in cases]
    rewriting = time.perf_counter() - started
    needs = [ask(brain, tenant, need_messages(case.question)) for case in cases]
    right = sum(case.slice["item"] in need for case, need in zip(cases, needs, strict=True))
    return Measured(
        CONVERSATIONS / writing, loading, 1000 * rewriting / len(cases), right / len(cases),
        _by_slice(reader, cases, rewrites),
    )  # fmt: skip


def ask(brain: ExtractiveBackend, tenant: str, messages: list[Message]) -> str:
    return str(
        brain.answer(tenant, [{"role": message["role"], "content": message["content"]} for message in messages], None)
    )


def dev_cases(out: Path, tenant: str) -> Iterator[Case]:
    slices = {row["id"]: row for row in map(orjson.loads, (out / SLICES).read_bytes().splitlines())}
    for row in read_questions(out / QUESTIONS, Columns(), tenant):
        if isinstance(row, Question) and row.split == "dev":
            yield Case(row, slices[row.id])


def _by_slice(reader: QuestionParser, cases: list[Case], rewrites: list[str]) -> dict[str, dict[str, float]]:
    hits = [
        {name: _first(reader, query) in case.question.gold for name, query in _queries(case, rewrite).items()}
        for case, rewrite in zip(cases, rewrites, strict=True)
    ]
    table = {}
    for slice_name, belongs in SLICES_OF.items():
        chosen = [hit for hit, case in zip(hits, cases, strict=True) if belongs(case.slice)]
        shares = {name: round(sum(hit[name] for hit in chosen) / len(chosen), 3) for name in chosen[0]}
        table[slice_name] = {**shares, "rows": len(chosen)}
    return table


def _queries(case: Case, rewrite: str) -> dict[str, str]:
    return {
        "plain": case.question.question,
        "teacher": rewrite,
        "ceiling": f"{case.slice['item']} {case.slice['aspect']}",
    }


def _first(reader: QuestionParser, query: str) -> str:
    number = reader.first(query)
    return "" if number is None else reader.index.passage(number).id


def _print(tenant: str, measured: Measured) -> None:
    print(
        f"{tenant}: {measured.conversations_per_second:,.0f} conversations a second; teacher loads in "
        f"{measured.load_seconds:.1f} s, rewrites in {measured.rewrite_ms:.2f} ms; "
        f"need names the right item in {measured.need_right:.3f}"
    )
    print(f"  {'top-1 on dev':<16}{'rows':>6}{'plain':>9}{'teacher':>9}{'ceiling':>9}")
    for name, row in measured.top1.items():
        print(f"  {name:<16}{row['rows']:>6}{row['plain']:>9.3f}{row['teacher']:>9.3f}{row['ceiling']:>9.3f}")


def main() -> None:
    seed, variant = int(sys.argv[1]) if len(sys.argv) > 1 else SEED, (sys.argv[2:] or ["plain"])[0]
    with tempfile.TemporaryDirectory() as folder:
        figures = {tenant: measure(tenant, Path(folder) / tenant, seed, variant) for tenant in TENANTS}
    for tenant, measured in figures.items():
        _print(tenant, measured)
    ratio = min(m.conversations_per_second for m in figures.values()) / PER_SECOND
    useful = all(TEACHER[0] <= m.top1["all"]["teacher"] <= TEACHER[1] for m in figures.values())
    report = {"name": "samples", "ratio": round(ratio, 2), "target": 1.0, "ok": ratio >= 1 and useful,
              "figures": {tenant: m._asdict() for tenant, m in figures.items()}}  # fmt: skip
    print(orjson.dumps(report).decode())


if __name__ == "__main__":
    main()
