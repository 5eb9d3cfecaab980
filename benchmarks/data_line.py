"""The plan's own loop against ours: same rows, same calls, same stand-ins. `make bench-data-line`

500 rows, 200 ms a teacher call and 50 ms a retrieval, 10 teacher calls and 20 retrievals at once. The bound is
what these limits allow at best. Then rows a second and the memory of each stage as the rows grow, to 100,000.
"""

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks import plan_loop
from benchmarks.memory import memory_table
from benchmarks.report import report
from benchmarks.standin import started
from components.data.convert.config import ConvertConfig
from components.data.convert.stage import convert
from components.data.generate.config import GenerateConfig
from components.data.generate.stage import generate
from components.data.validate.config import ValidateConfig
from components.data.validate.stage import validate
from pipelines.execute.rundir import write_json
from qinglan.processes.services import run_service
from qinglan.tables.tables import read_table, write_table
from standins.samples import write_sample

TEACHER_SECONDS, RAG_SECONDS = 0.2, 0.05
TEACHER_AT_ONCE, RAG_AT_ONCE = 10, 20
PRICE = {"input": 1.25, "cached_input": 0.125, "output": 10.0, "as_of": "2025-08-07"}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--memory-rows", type=int, nargs="*", default=[1_000, 10_000, 100_000])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        questions, knowledge_base = prepare(root, options.rows)
        with stand_ins(root, knowledge_base) as (teacher_url, rag_url, gateway_url):
            plan_time = time_plan(root / "theirs", questions, teacher_url, rag_url)
            line_time = time_ours(root / "ours", questions, gateway_url)
    bound = options.rows * (TEACHER_SECONDS / TEACHER_AT_ONCE + 2 * RAG_SECONDS / RAG_AT_ONCE)
    for name, seconds in (("plan", plan_time), ("ours", line_time)):
        print(f"{name:>5}: " + ", ".join(f"{stage} {value:.2f} s" for stage, value in seconds.items()))
    overall, faster = sum(line_time.values()) / bound, plan_time["validate"] / line_time["validate"]
    print(f"bound by the limits {bound:.2f} s; ours is {overall:.3f} of it; validation {faster:.1f} times faster")
    memory = memory_table(options.memory_rows)
    stages = {stage: {rows: cost._asdict() for rows, cost in costs.items()} for stage, costs in memory.items()}
    report(
        "data-line", faster, 8.0, faster >= 8 and overall <= 1.15, of_bound=round(overall, 3), of_bound_target=1.15,
        rows=options.rows, plan=plan_time, ours=line_time, stages=stages,
    )  # fmt: skip


def prepare(root: Path, rows: int) -> tuple[Path, Path]:
    """A sheet whose needs are written, so that both sides make the same calls."""
    write_sample("fivedoctors", root / "data", max(8, rows), seed=11)
    source, sheet = root / "data/questions.xlsx", root / "questions.xlsx"
    columns = ["编号", "对话编号", "问题", "用户画像", "历史摘要", "检索需求"]
    with write_table(sheet, columns) as add:
        for count, (_, cells) in enumerate(read_table(source)):
            if count == rows:
                break
            add([*(cells.get(name) for name in columns[:-1]), str(cells["问题"])])
    return sheet, root / "data/knowledge_base.jsonl"


@contextmanager
def stand_ins(root: Path, knowledge_base: Path) -> Iterator[tuple[str, str, str]]:
    with ExitStack() as stack:
        arguments = ["--kb", f"fivedoctors={knowledge_base}", "--latency", str(TEACHER_SECONDS), "--port", "0"]
        teacher_url = stack.enter_context(run_service("standins.teacher", arguments, root / "teacher.log"))
        rag_url = stack.enter_context(started("benchmarks.slow_rag", str(RAG_SECONDS)))
        model = {"base_url": teacher_url, "model": "fivedoctors", "price": PRICE}
        settings = {
            "teacher": model, "judge": model, "limits": {"concurrency": TEACHER_AT_ONCE},
            "rag": {"base_url": rag_url, "concurrency": RAG_AT_ONCE},
        }  # fmt: skip
        write_json(root / "gateway.json", settings)
        arguments = ["--config", str(root / "gateway.json"), "--journal", str(root / "journal.sqlite")]
        arguments += ["--retrieval-cache", str(root / "retrievals.sqlite"), "--port", "0"]
        yield (
            teacher_url,
            rag_url,
            stack.enter_context(run_service("serving.gateway", arguments, root / "gateway.log")),
        )


def time_plan(out: Path, questions: Path, teacher_url: str, rag_url: str) -> dict[str, float]:
    out.mkdir()
    rewrites, validated = out / "rewrites.xlsx", out / "validated.xlsx"
    steps: dict[str, Callable[[], Any]] = {
        "generate": lambda: asyncio.run(plan_loop.generate(questions, rewrites, teacher_url, "fivedoctors")),
        "validate": lambda: asyncio.run(plan_loop.validate(rewrites, validated, rag_url, "fivedoctors")),
        "convert": lambda: plan_loop.convert(validated, out / "sft", 0.6),
    }
    return {name: timed(step) for name, step in steps.items()}


def time_ours(out: Path, questions: Path, gateway_url: str) -> dict[str, float]:
    rewrites, validated = out / "rewrites.jsonl", out / "validated.jsonl"
    settings = GenerateConfig(tenant_id="fivedoctors"), ValidateConfig(), ConvertConfig()
    steps: dict[str, Callable[[], Any]] = {
        "generate": lambda: generate(
            questions, rewrites, out / "rewrites.xlsx", out / "bad.jsonl", settings[0], gateway_url
        ),
        "validate": lambda: validate(
            rewrites, questions, validated, out / "validated.xlsx", out / "bad2.jsonl", settings[1], gateway_url
        ),
        "convert": lambda: convert(
            validated, out / "sft", out / "ppo", out / "test.jsonl", out / "left_out.jsonl", settings[2]
        ),
    }
    return {name: timed(step) for name, step in steps.items()}


def timed(step: Callable[[], Any]) -> float:
    started = time.monotonic()
    step()
    return round(time.monotonic() - started, 3)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
