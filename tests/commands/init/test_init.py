"""`qinglan init`: from a folder as a company has it to a tenant that plan and run take, with no file of ours edited.

sheet with the company's own column names, a folder of .docx, .pdf and .md -> init -> plan -> run -> report
"""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from commands.init.profiles import longer_prompts
from commands.init.setup import KNOWLEDGE_BASE_FILE
from components.training.ppo.config import PpoConfig
from components.training.sft.config import SftConfig
from pipelines.checks.plan import make_plan
from pipelines.lines.config import TRAINING, load_config
from qinglan.config import load_yaml, merge_settings
from tests.commands.companies import GOODS, write_company
from tests.commands.conftest import Here
from tests.screens.terminal_screen import ALL as ATTACKS_AT_ONCE
from tests.screens.terminal_screen import FORGED, on_terminal

pytestmark = pytest.mark.usefixtures("forks")

ROWS = [f"{GOODS[at % 8]}怎么用第{at}次" for at in range(64)]


@pytest.fixture
def company(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A sheet with columns of its own, and a folder of documents, where commands are called."""
    write_company(tmp_path, questions=64)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("longest", [500, 900, 1000, 3000])
def test_a_paid_profile_shows_the_sheets_longest_prompts_whole(longest: int) -> None:
    settings = merge_settings(load_yaml(TRAINING / "one-gpu-24.yaml"), longer_prompts("one-gpu-24", longest))

    assert SftConfig.parse(settings["sft"], "sft").max_prompt_tokens >= longest
    assert PpoConfig.parse(settings["ppo"], "ppo").max_prompt_tokens >= longest


@pytest.mark.slow
def test_a_company_folder_becomes_a_tenant_that_plan_takes(company: Path, here: Here) -> None:
    words = ["客服记录.xlsx", "--knowledge-base", "资料", "--domain", "户外用品", "--yes"]
    result = here("init", "acme", *words)

    assert result.code == 0, result.errors
    for line in (
        "64 questions of 65 rows; question = 用户问句, history_summary = 聊天记录, conversation_id = 会话ID",
        "! Not used: 会员等级. `generate.columns` in the profiles can name them.",
        "    question: 那它能机洗吗",
        "    said before: 用户：有徒步背包吗 / 助手：徒步背包有货",
        "The locked test has 0 rows with gold passages",
        "Next, for free, with stand-ins and a tiny model: `qinglan run acme`",
    ):
        assert line in result.out
    tenant = company / "tenants" / "acme"
    assert {path.name for path in tenant.iterdir()} == {
        "README.md", "demo.yaml", "gpt.yaml", "knowledge_base.jsonl", "student.txt", "teacher.txt",
    }  # fmt: skip
    assert "户外用品" in (tenant / "teacher.txt").read_text(encoding="utf-8")
    assert "`generate.columns`" in (readme := (tenant / "README.md").read_text(encoding="utf-8"))
    assert "\\`" not in readme and "\\(" not in readme
    for profile in ("demo", "gpt"):
        config = load_config("acme", profile)
        plan = make_plan(config)
        assert (plan.rows, plan.unfit) == (64, 1)
        assert config.ppo.prompts <= plan.splits["train"]
    assert here("plan", "acme").code == 0


@pytest.mark.slow
def test_a_second_init_changes_nothing(company: Path, here: Here) -> None:
    words = ["init", "acme", "客服记录.xlsx", "--yes"]
    assert here(*words).code == 0
    prompt = company / "tenants" / "acme" / "teacher.txt"
    prompt.write_text("我改过的提示词")

    again = here(*words)
    assert again.code == 2 and "is there already, and nothing was changed" in again.errors
    assert prompt.read_text() == "我改过的提示词"


@pytest.mark.slow
def test_the_answers_are_in_the_files(company: Path, here: Here) -> None:
    answers = {"teacher": "deepseek", "rag": "https://rag.acme.cn", "training": "one-gpu-80", "language": "en"}
    options = [f"--{name}={answer}" for name, answer in answers.items()]
    result = here("init", "acme", "客服记录.xlsx", "--domain", "tents {x}\nignore", *options, "--yes", "--json")

    assert result.code == 0, result.errors
    assert json.loads(result.out)["files"] == [
        "README.md", "deepseek.yaml", "demo.yaml", "judge.txt", "need.txt", "student.txt", "teacher.txt",
    ]  # fmt: skip
    config = load_config("acme", "deepseek")
    assert config.gateway.rag.base_url == "https://rag.acme.cn" and not config.stand_ins.rag
    assert (config.training, config.gateway.teacher.model) == ("one-gpu-80", "deepseek-flash")
    assert str(config.generate.system_prompt).startswith(
        "You are an expert in rewriting search queries about tents (x) ignore"
    )
    assert KNOWLEDGE_BASE_FILE not in (company / "tenants" / "acme" / "README.md").read_text(encoding="utf-8")
    assert config.validate_.need_prompt.startswith("You turn") and config.evaluate.judge_prompt.startswith(
        "You judge"
    )


def test_without_a_terminal_it_asks_for_yes(company: Path, here: Here) -> None:
    refused = here("init", "acme", "客服记录.xlsx")

    assert refused.code == 2 and "Add --yes" in refused.errors and not (company / "tenants").exists()


def test_a_person_is_asked_five_things_each_with_a_default(company: Path) -> None:
    keyboard, terminal = pty.openpty()
    command = [sys.executable, "-c", "from commands.cli import main; main()", "init", "acme", "客服记录.xlsx"]
    with subprocess.Popen(command, stdin=terminal, stdout=subprocess.PIPE) as process:
        os.write(keyboard, "\n户外用品\ndepseek\ndeepseek\n\none-gpu-80\n".encode())
        shown = process.communicate(timeout=120)[0].decode()

    assert process.returncode == 0
    for question in ("Language of prompts and README (zh, en) [zh]: ", "language (zh) [本公司产品和服务]: ",
                     "(gpt, deepseek) [gpt]: ", "or ours [ours]: ", "Machine of the paid run"):  # fmt: skip
        assert question in shown
    assert "--teacher 'depseek' is none of gpt, deepseek." in shown
    profile = load_yaml(company / "tenants" / "acme" / "deepseek.yaml")
    assert (profile["training"], profile["stand_ins"]) == ("one-gpu-80", {"rag": True})


@pytest.mark.parametrize(
    ("language", "lines"),
    [
        ("en", ["- `faq.md`: 1 passage", "unless `evaluate.gate.by: labels` in `gpt.yaml`"]),
        ("zh", ["- `faq.md`: 1 个段落", "除非在 `gpt.yaml` 里设置 `evaluate.gate.by: labels`", "没有用到：会员等级"]),
    ],
)
def test_the_readme_is_in_its_language_and_tells_both_ways_to_a_promotion(
    company: Path, here: Here, language: str, lines: list[str]
) -> None:
    (company / "faq.md").write_text("# 背包\n冷水手洗。\n", encoding="utf-8")
    (company / "scan.png").write_bytes(b"\x89PNG")
    files = ("--knowledge-base", "faq.md", "--knowledge-base", "scan.png")
    result = here("init", "acme", "客服记录.xlsx", *files, "--language", language, "--yes")

    readme = (company / "tenants" / "acme" / "README.md").read_text(encoding="utf-8")
    assert [line for line in lines if line not in readme] == []
    assert "! scan.png: is no format that is read here" in result.out and "0 passages" not in result.out + readme


def test_hostile_text_in_names_and_cells_is_shown_as_data(tmp_path: Path) -> None:
    quoted = ATTACKS_AT_ONCE.replace('"', '""')
    (tmp_path / "q.csv").write_bytes(f'问题,"{quoted}"\n"{quoted}","{quoted}"\n'.encode())
    documents = tmp_path / "docs"
    documents.mkdir()
    (documents / "a\x1b[2J<b>`x`.md").write_text(f"# {ATTACKS_AT_ONCE}\n退货", encoding="utf-8")
    screen = on_terminal(
        "init", "acme", "q.csv", "--knowledge-base", "docs", "--language", "zh", "--yes", cwd=tmp_path
    )

    assert screen.code == 0, screen.raw
    assert not screen.has_line(FORGED) and not screen.title
    readme = (tmp_path / "tenants" / "acme" / "README.md").read_text(encoding="utf-8")
    assert "\x1b" not in readme and "<b>" not in readme.replace("`docs/a\\x1b[2J<b>'x'.md`", "")
    assert "没有用到：" in readme and "Not used" not in readme, "the README's guesses are in its language"


@pytest.mark.parametrize("tenant", ["Acme", "../x", "training", "a b"])
def test_a_name_that_is_none_is_refused(
    tenant: str, tmp_path: Path, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "q.csv").write_text("问题\n怎么洗\n")
    refused = here("init", tenant, "q.csv", "--yes")

    assert (
        refused.code == 2 and "Traceback" not in refused.errors and list(tmp_path.iterdir()) == [tmp_path / "q.csv"]
    )


@pytest.mark.parametrize("option", [("--training", "a100x9"), ("--teacher", "claude"), ("--language", "fr")])
def test_an_option_that_is_no_answer_is_refused_before_the_sheet_is_shown(
    company: Path, here: Here, option: tuple[str, str]
) -> None:
    refused = here("init", "acme", "客服记录.xlsx", "--yes", *option)

    assert refused.code == 2 and refused.out == ""
    assert f"{option[0]} {option[1]!r} is none of" in refused.errors


@pytest.mark.slow
def test_conversations_that_cannot_be_divided_are_told_at_once(company: Path, here: Here) -> None:
    """A column with one value for all rows; a chat alone; and a sheet of too few rows for the trial."""
    Path("one.csv").write_text("问题,会话ID\n" + "".join(f"{row},A1\n" for row in ROWS), encoding="utf-8")
    Path("few.csv").write_text("问题\n" + "".join(f"{row}\n" for row in ROWS[:3]), encoding="utf-8")
    turns = [{"role": "user", "content": row} for row in ROWS]
    Path("chat.json").write_text(json.dumps(turns), encoding="utf-8")

    result = here("init", "acme", "one.csv", "--knowledge-base", "资料", "--yes")
    chat = here("init", "chat", "chat.json", "--yes")
    few = here("init", "few", "few.csv", "--knowledge-base", "资料", "--yes")

    assert "! 会话ID is not used as conversation_id: all 64 rows have the same value, A1" in result.out
    assert here("plan", "acme", "--profile", "demo").code == 0
    assert (chat.code, Path("tenants/chat").exists()) == (3, False)
    assert "chat.json: all 64 questions are of one conversation" in chat.errors
    assert "! `qinglan run few` would be refused:" in few.out and "a step of PPO takes" in few.out
    assert "Next: mend that, remove tenants/few, and call" in few.out and "Next, for free" not in few.out
    assert here("plan", "few", "--profile", "demo").code == 3
