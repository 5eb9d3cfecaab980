"""The command answers at once, and explains what it cannot do."""

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from commands.serve import SERVERS
from tests.commands.conftest import Here

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forks")]

HEAVY = {"torch", "kfp", "kserve", "pandas", "openai", "fastapi", "sklearn", "pydantic", "numpy"}


def qinglan(*words: str, cwd: Path | None = None) -> "subprocess.CompletedProcess[str]":
    code = "from commands.cli import main; main()"
    return subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, cwd=cwd, check=False)


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom typer.testing import CliRunner\nfrom commands.cli import app\n"
        "result = CliRunner().invoke(app, ['--help'])\n"
        f"print(result.exit_code, sorted({HEAVY!r} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert run.stdout.strip() == "0 []"


def test_a_run_says_at_once_what_it_does_and_imports_no_library_of_a_provider(here: Here, tmp_path: Path) -> None:
    """A profile that does not exist is refused before that."""
    words = ("--questions", tmp_path / "none.xlsx", "--out", tmp_path / "run")
    ended, as_json, nobody = (
        here("run", *tenant, *words) for tenant in (["fivedoctors"], ["fivedoctors", "--json"], ["nobody"])
    )
    code = "import sys\nimport commands.run.run\nprint({'openai', 'kfp', 'sklearn', 'torch'} & set(sys.modules))"
    imports = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert ended.errors.startswith(f"[run] fivedoctors in {tmp_path / 'run'}: reads the files")
    assert as_json.errors.startswith("qinglan: The run waits for this")
    assert nobody.errors.startswith("qinglan: No profile 'demo' for tenant 'nobody'")
    assert imports.stdout == "set()\n"


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["plan", "acme"], 2, "`qinglan init acme SHEET` writes one"),
        (
            ["plan", "fivedoctors", "--profile", "none"],
            2,
            "No profile 'none' for tenant 'fivedoctors'. It has deepseek, deepseek-only, demo, gpt: choose",
        ),
        (["plan", "fivedoctors", "--profile", "mine.yaml"], 2, "--profile mine.yaml: no such file"),
        (["plan", "fivedoctors"], 2, "--questions is missing"),
        (["run", "fivedoctors", "--questions", "none.xlsx"], 2, "--questions none.xlsx: no such file"),
        (["run", "../etc"], 2, "No profile"),
        (["sample", "acme", "--out", "x"], 2, "acme"),
        (["fly"], 2, "No such command"),
        (["demo-rollout", "--out", "nowhere"], 2, "nowhere/fivedoctors: no run there. `make demo` makes one."),
    ],
)
def test_a_command_that_cannot_run_explains_why(tmp_path: Path, words: list[str], code: int, message: str) -> None:
    run = qinglan(*words, cwd=tmp_path)

    assert (run.returncode, "Traceback" in run.stderr) == (code, False)
    assert message in run.stderr
    assert list(tmp_path.iterdir()) == []


def test_debug_shows_the_causes_above_the_message(tmp_path: Path) -> None:
    broken = tmp_path / "broken.yaml"
    broken.write_text("a: [")

    plain, debug = (qinglan(*words, "plan", "acme", "--profile", str(broken)) for words in ((), ("--debug",)))

    assert plain.stderr.startswith("qinglan: ") and "Traceback" not in plain.stderr
    assert "was the direct cause of the following exception" in debug.stderr and "ParserError" in debug.stderr
    assert debug.stderr.endswith(plain.stderr) and debug.returncode == plain.returncode == 2


def test_a_stage_that_does_not_exist_is_refused_with_those_there_are(tmp_path: Path) -> None:
    (tmp_path / "q.xlsx").touch()
    run = qinglan("run", "fivedoctors", "--questions", "q.xlsx", "--only", "fly", cwd=tmp_path)

    assert run.returncode == 2
    assert "No stage 'fly'. There are: generate, validate, label, convert, augment, base, sft, ppo" in run.stderr


def paid_run(folder: Path) -> list[str]:
    """Words of a paid run whose models and RAG service would be on this machine."""
    (folder / "q.jsonl").write_text('{"question": "怎么吃", "划分": "train"}\n', encoding="utf-8")
    (folder / "kb.jsonl").write_text('{"id": "k1", "content": "一天一粒"}\n', encoding="utf-8")
    price = {"input": 1.0, "cached_input": 0.1, "output": 10.0, "as_of": "2026-11-01"}
    model = {"base_url": "http://127.0.0.1:9/v1", "model": "m", "price": price}
    profile = {"gateway": {"teacher": model, "judge": model}, "stand_ins": {"teacher": False, "rag": True}}
    (folder / "mine.yaml").write_text(json.dumps(profile), encoding="utf-8")
    return ["run", "fivedoctors", "--profile", "mine.yaml", "--questions", "q.jsonl", "--until", "convert"]


def test_a_paid_run_is_not_started_without_a_yes(tmp_path: Path) -> None:
    run = qinglan(*paid_run(tmp_path), "--knowledge-base", "kb.jsonl", cwd=tmp_path)

    assert run.returncode == 2
    assert "add --yes" in run.stderr
    assert "Before anything is spent" in run.stdout
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--tenant", "acme"], "No profile 'gpt' for tenant 'acme'"),
        (["--tenant", "fivedoctors", "--training", "h100"], "no 'h100' in pipelines/configs/training"),
        (["--training", "a100x4"], "Give --tenant too"),
        (["--image", "qinglan/cpu:latest"], "give NAME=REFERENCE@sha256:DIGEST"),
    ],
)
def test_a_graph_that_cannot_be_compiled_is_explained(tmp_path: Path, words: list[str], message: str) -> None:
    ran = qinglan("compile", *words, "--out", str(tmp_path / "graphs"))

    assert (ran.returncode, "Traceback" in ran.stderr) == (2, False)
    assert message in ran.stderr
    assert not list((tmp_path / "graphs").glob("*"))


def test_a_sample_overwrites_nothing_but_itself(here: Here, tmp_path: Path) -> None:
    words = ("sample", "fivedoctors", "--conversations", "8", "--out", tmp_path)
    first, again = here(*words), here(*words)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    other = here(*words, "--seed", "1")

    assert (first.code, again.code, other.code) == (0, 0, 2) and len(before) == 3
    assert "holds another sample, or yours, and nothing was changed. Remove it, or give --out" in other.errors
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("package", [package for package, _ in SERVERS.values()])
def test_every_option_of_a_server_says_what_it_is_for(package: str) -> None:
    options = import_module(f"{package}.__main__").parser()._actions

    assert [option.option_strings for option in options if not option.help] == []
