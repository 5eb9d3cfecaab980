"""Help, errors and tables are Chinese for a person who reads Chinese; programs and logs read English."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from wcwidth import wcswidth

from tests.screens.terminal_screen import MAIN, on_terminal

pytestmark = pytest.mark.usefixtures("forks")


def qinglan(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, its output in 80 columns."""
    prefixes = ("LC_", "LANG", "QINGLAN_LANG")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(prefixes)}
    return subprocess.run(
        [sys.executable, "-c", MAIN, *words], capture_output=True, text=True, check=False,
        env={**clean, "COLUMNS": "80", "PYTHONUTF8": "1", **environment},
    )  # fmt: skip


def test_help_is_chinese_and_fits_its_columns() -> None:
    run = qinglan("submit", "--help", QINGLAN_LANG="zh")

    assert run.returncode == 0
    assert "在 Kubeflow Pipelines 上启动一次运行，并跟随它。" in run.stdout
    assert "显示这段帮助并退出。" in run.stdout
    assert "Start a run" not in run.stdout
    assert max(wcswidth(line) for line in run.stdout.splitlines()) <= 80
    assert "也不检查集…" not in run.stdout  # a line of Chinese is broken, not cut


def test_a_wrong_command_is_explained_in_chinese_with_the_same_code() -> None:
    chinese, english = (qinglan("submot", QINGLAN_LANG=language) for language in ("zh", "en"))

    assert chinese.returncode == english.returncode == 2
    assert "没有命令 'submot'。是否指 'submit'？" in chinese.stderr
    assert "No such command 'submot'. Did you mean 'submit'? `" in english.stderr


def test_json_is_the_same_in_every_language(tmp_path: Path) -> None:
    runs = [qinglan("fit", "a100x4", "--json", QINGLAN_LANG=language) for language in ("zh", "en")]

    assert runs[0].stdout == runs[1].stdout
    assert "It fits." in json.loads(runs[0].stdout).get("verdict", "It fits.")


def test_a_server_logs_in_english() -> None:
    run = qinglan("serve", "rag", "--knowledge-base", "/none", QINGLAN_LANG="zh")

    assert run.returncode != 0
    assert not [letter for letter in run.stdout + run.stderr if "\u4e00" <= letter <= "\u9fff"]


def test_a_servers_help_is_chinese_and_so_is_its_refusal_at_a_terminal(tmp_path: Path) -> None:
    help_text = qinglan("serve", "rag", "--help", QINGLAN_LANG="zh").stdout
    screen = on_terminal("serve", "rag", "--kb", "x", cwd=tmp_path, QINGLAN_LANG="zh")

    assert "带 PATH 的知识库的索引文件夹" in help_text and "TENANT[/KB][=PATH]" in help_text
    assert "请给出它的文件" in "".join(screen.lines)


@pytest.mark.parametrize(
    ("words", "chinese"),
    [
        (("serve", "rag"), "qinglan serve rag: 缺少必填的选项：--kb。`qinglan serve rag --help` 显示它的用法。"),
        (("serve", "teacher", "--kb", "a=b", "--port", "abc"), "qinglan serve teacher: --port：'abc' 不是整数。"),
    ],
)
def test_what_is_wrong_with_a_servers_options_is_one_line_in_chinese(
    words: tuple[str, ...], chinese: str, tmp_path: Path
) -> None:
    screen = on_terminal(*words, cwd=tmp_path, QINGLAN_LANG="zh")

    assert screen.code == 2
    assert "".join(screen.lines).strip().startswith(chinese)


def test_names_of_arguments_stay_as_they_are_typed() -> None:
    lines = qinglan("headroom", "--help", QINGLAN_LANG="zh").stdout.splitlines()

    assert any(line.strip(" │*").startswith("run ") for line in lines)


@pytest.mark.slow
def test_english_reads_no_catalogue() -> None:
    code = f"import sys\ntry:\n    {MAIN}\nfinally:\n    print(*sorted(n for n in sys.modules if 'messages' in n))"
    run = subprocess.run(
        [sys.executable, "-c", code, "--help"], capture_output=True, text=True, check=False,
        env={**os.environ, "QINGLAN_LANG": "en"},
    )  # fmt: skip

    assert "qinglan.messages.catalogue" not in run.stdout
    assert "qinglan.messages" in run.stdout


@pytest.mark.slow
def test_a_terminal_shows_the_fit_of_a_profile_in_chinese(tmp_path: Path) -> None:
    screen = on_terminal("fit", "a100x4", cwd=tmp_path, QINGLAN_LANG="zh")

    assert screen.code == 0
    assert any("每个阶段最多需要的量" in line for line in screen.lines)
    assert any(line.startswith("放得下") for line in screen.lines)
