"""A plan is of the run that is asked for: its stages, its folder, and a sheet that is read once."""

import asyncio
import json
from pathlib import Path

import orjson
import pytest

from pipelines.execute.execution import run_lock
from pipelines.execute.rundir import RunDir
from pipelines.lines.config import load_config
from pipelines.lines.rewriter import REWRITER
from qinglan.llm.host_allowlist import ALLOWED_VARIABLE
from qinglan.llm.paid.journal import Entry, Journal, make_call
from qinglan.llm.providers.prices import Usage
from tests.commands.conftest import Here


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    """A sheet without gold, large enough for every stage, and its knowledge base."""
    questions, base = tmp_path / "q.jsonl", tmp_path / "kb.jsonl"
    rows = [
        {"question": f"怎么吃{at} {split}", "split": split} for split in ("train", "dev", "test") for at in range(160)
    ]
    questions.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    base.write_text('{"id": "k1", "content": "一天一粒"}\n', encoding="utf-8")
    return ["plan", "fivedoctors", "--questions", str(questions), "--knowledge-base", str(base)]


@pytest.mark.slow
def test_a_plan_until_a_stage_counts_what_comes_before_it_and_asks_for_no_gate(words: list[str], here: Here) -> None:
    whole = json.loads(here(*words, "--json").out)
    short = json.loads(here(*words, "--until", "convert", "--json").out)
    screen = here(*words, "--until", "convert").out

    assert {step["step"] for step in whole["steps"]} > {"augment", "ppo", "evaluate"}
    assert {step["step"] for step in short["steps"]} == {"generate", "validate", "label"}
    assert short["stages"] == list(REWRITER.until("convert"))
    assert 0 < short["cost"] < whole["cost"]
    assert (short["training"], short["fit"]) == ("", [])
    assert "promoted?" not in screen and "PPO takes" not in screen


@pytest.mark.slow
def test_a_plan_of_a_folder_tells_of_its_answers_by_who_gave_them_and_changes_nothing(
    words: list[str], here: Here, tmp_path: Path
) -> None:
    teachers = {name: load_config("fivedoctors", name).gateway.teacher.model for name in ("gpt", "demo")}
    for name, model in teachers.items():
        asyncio.run(pay(RunDir(tmp_path / name).journal, 3, model))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    def planned(folder: str, profile: str) -> str:
        ended = here(*words, "--profile", profile, "--out", tmp_path / folder, "--json")
        return "".join(line for line in json.loads(ended.out)["warnings"] if "journal.sqlite" in line)

    assert "paid answers (3 for 0.75 USD)" in planned("gpt", "gpt")
    assert "3 answers of the stand-in" in planned("demo", "demo")
    unnamed = planned("demo", "gpt")
    assert f"({teachers['demo']})" in unnamed and "0.75 USD" in unnamed and "paid answers" not in unnamed
    assert planned("new", "gpt") == ""
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


async def pay(path: Path, answers: int, model: str) -> None:
    journal = Journal(path)
    for number in range(answers):
        call = make_call({"model": model, "messages": [{"role": "user", "content": f"问{number}"}]}, 0)
        attempt = await journal.sent(call, Entry("generate", f"row-{number}", "teacher"), reserved=1.0)
        await journal.answered(attempt, call.key, orjson.dumps({}), Usage(10, 2, 5, 1), 0.25)
    journal.close()


@pytest.mark.parametrize("until", ["ppo", "convert"])
@pytest.mark.parametrize("command", ["plan", "run"])
def test_a_sheet_that_only_repeats_itself_is_refused_before_anything_is_paid(
    command: str, until: str, words: list[str], here: Here, tmp_path: Path
) -> None:
    (tmp_path / "q.jsonl").write_text('{"question": "帐篷怎么洗"}\n' * 120)

    ended = here(command, *words[1:], "--out", tmp_path / "run", "--until", until)

    assert ended.code == 3
    assert "rows of train nearly repeat a row of dev or test" in ended.errors
    assert "--until sft" not in ended.errors + ended.out and "left at most" not in ended.errors + ended.out
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("command", ["plan", "run"])
def test_all_that_refuses_a_run_is_said_at_once(
    command: str, words: list[str], here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another tenant's folder, a host, the memory, labels: each was named when the one before was mended."""
    sheet_path = tmp_path / "q.jsonl"
    sheet_path.write_text(sheet_path.read_text().replace('"split"', '"gold": "k9", "split"'))
    folder = tmp_path / "acme run"
    with run_lock(RunDir(folder)):
        (folder / "config.yaml").write_text("tenant_id: acme\nquestions: q\nknowledge_base: k\n")
    monkeypatch.setenv(ALLOWED_VARIABLE, "nobody.example")
    monkeypatch.setattr("pipelines.checks.sizing.check.host_bytes", lambda: 12_000_000_000)
    more = ["--profile", "gpt", "--training", "cpu", "--out", str(folder)]

    ended = here(command, *words[1:], *more)

    positions = [ended.errors.find(part) for part in ("'acme'", "nobody.example", "Does not fit: sft", "k9")]
    assert ended.code == 2 and -1 not in positions and positions == sorted(positions), ended.errors


def test_all_that_refuses_a_style_run_is_said_at_once(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "letter.txt").write_text("mine")
    monkeypatch.setattr("pipelines.checks.sizing.check.host_bytes", lambda: 1_000_000_000)

    ended = here("style", "run", tmp_path / "none.json", "--profile", "cpu", "--out", tmp_path / "own")

    positions = [ended.errors.find(part) for part in ("letter.txt", "none.json: no such file", "Does not fit: style")]
    assert ended.code == 2 and -1 not in positions and positions == sorted(positions), ended.errors
