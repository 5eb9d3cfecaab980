"""What a person who reads Chinese sees of common commands and mistakes has no English sentence, nor half of one."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from standins.samples import write_sample
from tests.english import english_left

RUN_ALL = """
import json, sys
from pipelines.cli import main
for words in json.loads(sys.argv[1]):
    sys.argv = ["qinglan", *words]
    try:
        main()
    except SystemExit:
        pass
"""

MISTAKES = (
    "run nobody",
    "run fivedoctors --profile nothing",
    "run fivedoctors {sheet} --set sft.epochz=3",
    "run fivedoctors {sheet} --set sft.epochs=three",
    "run fivedoctors {sheet} --set sft.epochs",
    "run fivedoctors {sheet} --until nowhere",
    "run fivedoctors --bad-option",
    "plan fivedoctors --questions {bad}.csv",
    "plan fivedoctors {sheet} --knowledge-base {bad}.jsonl",
    "audit nothing",
    "audit {bad}.csv",
    "compile --tenant nobody",
    "fit nothing",
    "keys new nobody",
    "headroom /tmp",
    "why row-1 /tmp",
    "blind {bad}.xlsx --out /tmp",
    "init acme {bad}.csv",
    "sample nobody --out /tmp/none",
    "sample fivedoctors --out /tmp/none --conversations 2",
    "check-rag nonsense",
    "check-rag http://127.0.0.1:9 --question 你好",
    "style predict",
    "demo-audit --out /tmp/none",
    "doctor nobody",
)
COMMANDS = (
    "plan fivedoctors {sheet} --profile gpt",
    "plan chengla {sheet}",
    "doctor fivedoctors {sheet}",
    "fit a100x4",
)


@pytest.fixture(scope="module")
def screen(tmp_path_factory: pytest.TempPathFactory) -> str:
    """All lines of these commands, which one process runs one after the other."""
    folder = tmp_path_factory.mktemp("screens")
    write_sample("fivedoctors", folder, conversations=30, seed=5)
    (folder / "bad.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    (folder / "bad.jsonl").write_text('{"id": 1}\n', encoding="utf-8")
    sheet = f"--questions {folder / 'questions.xlsx'} --knowledge-base {folder / 'knowledge_base.jsonl'}"
    commands = [words.format(sheet=sheet, bad=folder / "bad").split() for words in (*MISTAKES, *COMMANDS)]
    run = subprocess.run(
        [sys.executable, "-c", RUN_ALL, json.dumps(commands)], capture_output=True, text=True, check=True,
        cwd=folder, env=_environment(folder),
    )  # fmt: skip
    return run.stdout + run.stderr


def _environment(folder: Path) -> dict[str, str]:
    import os

    kept = {name: value for name, value in os.environ.items() if not name.startswith(("KUBE", "KFP_"))}
    return kept | {"QINGLAN_LANG": "zh", "COLUMNS": "400", "HOME": str(folder), "PYTHONUTF8": "1"}


def test_no_line_is_english_or_half_english(screen: str) -> None:
    assert len(screen.splitlines()) > 100
    assert english_left(screen) == [], "\n".join(english_left(screen))


@pytest.mark.parametrize(
    ("line", "left"),
    [
        ("RAG 服务 /a：没有应答（All connection attempts failed）", True),
        ("主机 'a b' (teacher.base_url), host 'c' of it", True),
        ("请运行 `qinglan init acme SHEET`，或用 --set gateway.budget=20", False),
        ("闸门暂缓：sft 的 dev 行", False),
    ],
)
def test_english_that_is_left_is_noticed(line: str, left: bool) -> None:
    assert bool(english_left(line)) is left
