"""Rows a second and memory of each stage as the rows grow: `python -m benchmarks.memory 1000 10000 100000`

Each stage runs in a process of its own, against a gateway that answers at once: what is timed is this project and
that gateway's Python, not a teacher. Three rows are one conversation.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import orjson

from benchmarks.standin import started
from components.data.convert.config import ConvertConfig
from components.data.convert.stage import convert
from components.data.generate.config import GenerateConfig
from components.data.generate.stage import generate
from components.data.validate.config import ValidateConfig
from components.data.validate.stage import validate
from qinglan.tables.tables import write_table

STAGES = ("generate", "validate", "convert")


class Cost(NamedTuple):
    rows_per_second: float
    megabytes: int


def memory_table(sizes: list[int]) -> dict[str, dict[str, Cost]]:
    """Measure each stage's memory by rows, and print each figure at once."""
    table: dict[str, dict[str, Cost]] = {stage: {} for stage in STAGES}
    for rows in sizes:
        with tempfile.TemporaryDirectory() as folder, started("benchmarks.fast_gateway") as url:
            write_questions(Path(folder) / "questions.xlsx", rows)
            for stage in STAGES:
                command = [sys.executable, "-m", "benchmarks.memory", "--stage", stage, folder, url]
                run = subprocess.run(command, capture_output=True, text=True, check=True)
                seconds, megabytes = orjson.loads(run.stdout.splitlines()[-1])
                cost = table[stage][str(rows)] = Cost(round(rows / seconds, 1), megabytes)
                print(f"{stage:>9} {rows:>7,} rows: {cost.rows_per_second:,.0f} a second, {megabytes} MB", flush=True)
            check_conversations(Path(folder))
    return table


def write_questions(path: Path, rows: int) -> None:
    with write_table(path, ["编号", "对话编号", "问题", "用户画像", "历史摘要", "检索需求"]) as add:
        for n in range(rows):
            item = f"产品{n % 4999}"
            history = f"用户正在了解{item}，之前还看过产品{n % 101}，上一轮问的是价格"
            add([f"r{n}", f"c{n // 3}", f"那它一天吃几次{n}", "宝妈", history, f"{item}一天吃几次"])


def run_stage(stage: str, root: Path, url: str) -> tuple[float, int]:
    """Run one stage on the folder's files: its seconds, and this process's largest memory in MB."""
    started = time.monotonic()
    rewrites, validated = root / "rewrites.jsonl", root / "validated.jsonl"
    if stage == "generate":
        settings = GenerateConfig(tenant_id="fivedoctors")
        generate(root / "questions.xlsx", rewrites, root / "rewrites.xlsx", root / "bad1", settings, url)
    elif stage == "validate":
        sheet = root / "validated.xlsx"
        validate(rewrites, root / "questions.xlsx", validated, sheet, root / "bad2", ValidateConfig(), url)
    else:
        convert(validated, root / "sft", root / "ppo", root / "test.jsonl", root / "left_out.jsonl", ConvertConfig())
    return time.monotonic() - started, largest_memory()


def check_conversations(root: Path) -> None:
    """Every conversation is whole in one split: a figure of an export that leaks would be worth nothing."""
    splits = [
        _conversations(path) for path in (root / "sft/train.jsonl", root / "sft/dev.jsonl", root / "test.jsonl")
    ]
    shared = sum(map(len, splits)) - len(set().union(*splits))
    assert min(map(len, splits)) and not shared, f"{shared} conversations are in two splits"


def _conversations(path: Path) -> set[str]:
    with path.open("rb") as file:
        rows = map(orjson.loads, file)
        return {(row.get("metadata") or row)["conversation_id"] for row in rows}


def largest_memory(process: int | str = "self") -> int:
    """Peak memory of a process since it began, in MB. (ru_maxrss would count its parent's, from before the exec.)"""
    status = Path(f"/proc/{process}/status").read_text(encoding="ascii")
    return int(status.split("VmHWM:")[1].split()[0]) // 1024


if __name__ == "__main__":
    if sys.argv[1] == "--stage":
        print(orjson.dumps(run_stage(sys.argv[2], Path(sys.argv[3]), sys.argv[4])).decode())
    else:
        memory_table([int(word) for word in sys.argv[1:]])
