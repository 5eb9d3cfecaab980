"""Chinese screens of common commands and mistakes have no English sentence, nor half of one."""

import errno
import json
import os
import subprocess
from pathlib import Path
from typing import get_args

import pytest

from commands.compare_teachers.table import Recommendation, Word, recommendation_sentence
from qinglan.lineage.signing.keys import KEYS_VARIABLE
from qinglan.lineage.signing.trust import save_trust
from qinglan.messages import chinese
from standins.samples import write_sample
from tests.commands.why.row_history_files import write_stage_files
from tests.processes.forkserver import GATEWAY, forked
from tests.releases.lineage_world import make_keys, write_run
from tests.screens.english import english_left

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
    "plan fivedoctors {sheet} --set questions=3 --set no=1",
    "serve nope",
    "keys rotate",
    "keys new builder --folder /proc/none",
    "compare-teachers fivedoctors {sheet} --rows 3",
    "audit {run} --page /proc/none/page.html",
    "audit {altered}",
    "audit {altered} --why",
    "audit {incomplete}",
    "init holes {holes} --yes --knowledge-base {bad}.jsonl",
)
COMMANDS = (
    "init holes {holes} --yes",
    "plan holes",
    "keys list",
    "audit {run}",
    "audit {run} --why",
    "audit {run} --diff {altered}",
    *(f"why {row} {{stages}}" for row in ("tested", "twin", "learned", "rejected", "long")),
    "fit cpu",
    "plan fivedoctors {sheet} --profile gpt",
    "plan chengla {sheet}",
    "doctor fivedoctors {sheet}",
    "fit a100x4",
)


COMMON = {
    errno.ENOENT, errno.EACCES, errno.EPERM, errno.ENOSPC, errno.EROFS, errno.EISDIR, errno.ENOTDIR, errno.EEXIST,
    errno.ENAMETOOLONG, errno.EMFILE, errno.EIO, errno.ENOTEMPTY, errno.EDQUOT, errno.ELOOP, errno.ENOMEM,
    errno.EBUSY, errno.ECONNREFUSED, errno.ETIMEDOUT, errno.EADDRINUSE, errno.EHOSTUNREACH, errno.ENETUNREACH,
}  # fmt: skip
"""Errors of the operating system that a person meets."""

HOLES = (
    "会话,问题,用户画像\n"
    + "".join(f"c{n // 2},怎么退货{n},老客户\n" for n in range(60))
    + "c90,,\nc91,   ,\nc92,TRUE,\n"
)
"""A sheet with rows that are no questions."""


@pytest.fixture(scope="module")
def screen(tmp_path_factory: pytest.TempPathFactory) -> str:
    """All lines of these commands, which one process runs one after the other."""
    folder = tmp_path_factory.mktemp("screens")
    write_sample("fivedoctors", folder, conversations=30, seed=5)
    keys = make_keys(folder / "keys")
    save_trust(folder / "keys" / "trust.yaml", keys.policy)
    runs = {name: write_run(folder / "runs" / name, keys) for name in ("run", "altered", "incomplete")}
    (runs["altered"] / "artifacts/line-1/sft/model/model.safetensors").write_bytes(b"x")
    (runs["incomplete"] / "artifacts/line-1/generate/rewrites").unlink()
    (folder / "stages").mkdir()
    write_stage_files(folder / "stages")
    (folder / "holes.csv").write_text(HOLES, encoding="utf-8")
    (folder / "bad.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    (folder / "bad.jsonl").write_text('{"id": 1}\n', encoding="utf-8")
    sheet = f"--questions {folder / 'questions.xlsx'} --knowledge-base {folder / 'knowledge_base.jsonl'}"
    paths = {"sheet": sheet, "bad": folder / "bad", "stages": folder / "stages", "holes": folder / "holes.csv"}
    commands = [words.format(**paths, **runs).split() for words in (*MISTAKES, *COMMANDS)]
    command = forked("tests.processes.qinglan_commands", json.dumps(commands), libraries=GATEWAY)
    run = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=folder, env=_environment(folder)
    )  # fmt: skip
    return run.stdout + run.stderr


def _environment(folder: Path) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("KUBE", "KFP_"))}
    settings = {"QINGLAN_LANG": "zh", "COLUMNS": "400", "HOME": str(folder), "PYTHONUTF8": "1"}
    return inherited | settings | {KEYS_VARIABLE: str(folder / "keys")}


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
        ("给定：questions d62482fc5caa（verified）", True),
        ("Judges:", True),
        ("validate  accepted", True),
        ("dev 3 行, 测试 5 行", True),
        ("没有叫 content, 内容 的列；现有 id", False),
    ],
)
def test_english_that_is_left_is_noticed(line: str, left: bool) -> None:
    assert bool(english_left(line)) is left


@pytest.mark.parametrize("number", sorted(set(errno.errorcode) & COMMON), ids=errno.errorcode.get)
def test_what_the_operating_system_says_is_chinese_in_our_sentences(number: int) -> None:
    for sentence in (
        "/a/b: {}. Choose another place, or make room.",
        "/a/b: cannot be read ({}).",
        "/a: {}. Push the artifact again.",
    ):
        assert english_left(chinese().translate(sentence.format(os.strerror(number)))) == []


@pytest.mark.parametrize("word", get_args(Word))
@pytest.mark.parametrize("rows", [None, 870])
def test_the_recommendation_of_a_teacher_is_chinese(word: Word, rows: int | None) -> None:
    text = recommendation_sentence(Recommendation(word, "gpt", rows), "3.0")
    shown = chinese().translate(text)

    assert english_left(shown) == [] and shown != text
