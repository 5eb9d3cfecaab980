"""The largest memory of each stage as the rows grow: `python -m benchmarks.memory 1000 10000 100000`

Each stage runs in a process of its own, against a gateway that answers at once.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.standin import started
from components.data.convert.config import ConvertConfig
from components.data.convert.stage import convert
from components.data.generate.config import GenerateConfig
from components.data.generate.stage import generate
from components.data.validate.config import ValidateConfig
from components.data.validate.stage import validate
from qinglan.tables import write_table

STAGES = ("generate", "validate", "convert")


def memory_table(sizes: list[int]) -> dict[str, dict[str, int]]:
    """Megabytes by stage and rows, printed as they come."""
    table: dict[str, dict[str, int]] = {stage: {} for stage in STAGES}
    for rows in sizes:
        with tempfile.TemporaryDirectory() as folder, started("benchmarks.fast_gateway") as url:
            write_questions(Path(folder) / "questions.xlsx", rows)
            for stage in STAGES:
                command = [sys.executable, "-m", "benchmarks.memory", "--stage", stage, folder, url]
                run = subprocess.run(command, capture_output=True, text=True, check=True)
                table[stage][str(rows)] = int(run.stdout.splitlines()[-1])
                print(f"{stage:>9} {rows:>7,} rows: {table[stage][str(rows)]} MB", flush=True)
    return table


def write_questions(path: Path, rows: int) -> None:
    with write_table(path, ["编号", "对话编号", "问题", "用户画像", "历史摘要", "检索需求"]) as add:
        for n in range(rows):
            item = f"产品{n % 4999}"
            history = f"用户正在了解{item}，之前还看过产品{n % 101}，上一轮问的是价格"
            add([f"r{n}", f"c{n // 3}", f"那它一天吃几次{n}", "宝妈", history, f"{item}一天吃几次"])


def run_stage(stage: str, root: Path, url: str) -> int:
    """Run one stage on the folder's files; the answer is this process's largest memory in MB."""
    rewrites, validated = root / "rewrites.jsonl", root / "validated.jsonl"
    if stage == "generate":
        settings = GenerateConfig(tenant_id="fivedoctors")
        generate(root / "questions.xlsx", rewrites, root / "rewrites.xlsx", root / "bad1", settings, url)
    elif stage == "validate":
        sheet = root / "validated.xlsx"
        validate(rewrites, root / "questions.xlsx", validated, sheet, root / "bad2", ValidateConfig(), url)
    else:
        convert(validated, root / "sft", root / "ppo", root / "test.jsonl", ConvertConfig())
    return largest_memory()


def largest_memory() -> int:
    """Of this process since it began, in MB. (ru_maxrss would count its parent's, from before the exec.)"""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split("VmHWM:")[1].split()[0]) // 1024


if __name__ == "__main__":
    if sys.argv[1] == "--stage":
        print(run_stage(sys.argv[2], Path(sys.argv[3]), sys.argv[4]))
    else:
        memory_table([int(word) for word in sys.argv[1:]])
