"""A run's folder is its own: nobody else's files, and no other run's inputs, are written over."""

import json
from pathlib import Path

import pytest

from pipelines.checks.preflight import with_run_files
from pipelines.execute.execution import prepare_run, run_lock
from pipelines.execute.rundir import RunDir
from pipelines.lines.config import dump_config, load_config, load_style_config
from pipelines.lines.rewriter import REWRITER, RunConfig
from qinglan.errors import ConfigError
from qinglan.files.digests import digest
from qinglan.lineage.signing.keys import KEYS_VARIABLE
from tests.commands.conftest import Here


def inputs(folder: Path, question: str = "怎么吃") -> RunConfig:
    folder.mkdir(exist_ok=True)
    (folder / "q.jsonl").write_text(f'{{"question": "{question}"}}\n', encoding="utf-8")
    (folder / "kb.jsonl").write_text('{"id": "k1", "content": "一天一粒"}\n', encoding="utf-8")
    return load_config("fivedoctors", "demo", questions=folder / "q.jsonl", knowledge_base=folder / "kb.jsonl")


def begun(root: Path, config: RunConfig) -> RunDir:
    """The folder of a run that has begun."""
    run = RunDir(root)
    with run_lock(run):
        dump_config(config, run.config)
    return run


def test_a_folder_with_somebodys_files_is_left_as_it_is(tmp_path: Path, here: Here) -> None:
    config, foreign = inputs(tmp_path / "data"), tmp_path / "thesis"
    foreign.mkdir()
    (foreign / "chapter.docx").write_text("mine")
    words = ("--questions", config.questions, "--knowledge-base", config.knowledge_base, "--out", foreign)

    ended = here("run", "fivedoctors", *words)

    assert ended.code == 2 and "(chapter.docx)" in ended.errors
    assert [path.name for path in foreign.iterdir()] == ["chapter.docx"]
    with pytest.raises(ConfigError, match="no run's"), run_lock(RunDir(foreign)):
        pass
    for name in ("run.log", "b", "a"):
        (foreign / name).touch()
    with pytest.raises(ConfigError, match=r"\(a, b, chapter.docx, \.\.\.\)"):
        with_run_files(config, RunDir(foreign), "")


def test_what_a_desktop_or_a_file_system_makes_by_itself_is_nobodys_file(tmp_path: Path) -> None:
    config, folder = inputs(tmp_path / "data"), tmp_path / "empty"
    folder.mkdir()
    with_run_files(config, RunDir(folder), "")

    (folder / ".DS_Store").touch()
    (folder / "lost+found").mkdir()
    with_run_files(config, RunDir(folder), "")


def style_run(folder: Path) -> RunDir:
    """The folder of a style run that has begun, beside its labelled answers."""
    folder.mkdir(exist_ok=True)
    (folder / "style.jsonl").write_text('{"question": "怎么吃", "answer": "一天一粒", "label": "售前"}\n')
    run = RunDir(folder / "style")
    with run_lock(run):
        dump_config(load_style_config("laptop", labelled=folder / "style.jsonl"), run.config)
    return run


def files_of(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("line", ["style", "rewriter"])
@pytest.mark.parametrize("only", [(), ("--only", "gate")])
def test_a_run_of_the_other_line_is_left_as_it_is(
    line: str, only: tuple[str, ...], tmp_path: Path, here: Here
) -> None:
    config = inputs(tmp_path / "data")
    rewriter, style = begun(tmp_path / "rewriter", config), style_run(tmp_path / "data")
    before = files_of(tmp_path)

    if line == "style":
        ended = here("style", "run", tmp_path / "data" / "style.jsonl", "--out", rewriter.root, *only)
    else:
        words = ("--questions", config.questions, "--knowledge-base", config.knowledge_base)
        ended = here("run", "fivedoctors", *words, "--out", style.root, *only)

    other = "style" if line == "rewriter" else "rewriter"
    assert ended.code == 2
    assert f"holds a run of the {other} line" in ended.errors
    assert files_of(tmp_path) == before


@pytest.mark.parametrize("command", [("headroom",), ("why", "row-1"), ("blind", "sheet.xlsx", "--out")])
def test_a_command_of_the_rewriters_line_says_that_a_run_is_of_the_style_line(
    command: tuple[str, ...], tmp_path: Path, here: Here
) -> None:
    ended = here(*command, style_run(tmp_path / "data").root)

    assert ended.code == 2
    assert "holds a run of the style line" in ended.errors


@pytest.mark.parametrize("name", ["questions", "knowledge_base"])
def test_another_runs_file_is_refused_where_a_run_has_begun(tmp_path: Path, name: str) -> None:
    run = begun(tmp_path / "run", inputs(tmp_path / "data"))
    other = tmp_path / "other"
    other.write_text('{"id": "k2", "content": "怎么洗", "question": "怎么洗"}\n', encoding="utf-8")
    config = inputs(tmp_path / "data").model_copy(update={name: other})

    with pytest.raises(ConfigError, match=f"began with --{name.replace('_', '-')} .*remove {run.config} first"):
        with_run_files(config, run, "")
    run.config.unlink()
    with_run_files(config, run, "")


def test_a_run_goes_on_with_its_files_mended_copied_or_named_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = begun(tmp_path / "run", inputs(tmp_path / "data"))

    copied = with_run_files(inputs(tmp_path / "copy"), run, "")
    mended = inputs(tmp_path / "data", "怎么洗")
    assert with_run_files(mended, run, "") == mended
    monkeypatch.chdir(tmp_path)
    with_run_files(inputs(Path("data")), run, "")

    assert copied == inputs(tmp_path / "data")  # a copy may be somebody's for a moment


def test_the_same_relative_path_in_another_folder_is_another_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = RunDir(tmp_path / "run")
    with run_lock(run):
        prepare_run(REWRITER, inputs(Path("data")), run, ["generate"], alone=False)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")

    with pytest.raises(ConfigError, match=f"began with --questions {tmp_path}/data/.* holds other bytes"):
        with_run_files(inputs(Path("data"), "怎么洗"), run, "")


def test_a_moved_file_is_known_by_what_a_step_has_noted(tmp_path: Path) -> None:
    run = begun(tmp_path / "run", inputs(tmp_path / "data"))
    (tmp_path / "data").rename(tmp_path / "moved")
    moved = inputs(tmp_path / "moved")
    assert moved.questions and moved.knowledge_base

    with pytest.raises(ConfigError, match=r"began with --questions .*, which is not there any more, and no step"):
        with_run_files(moved, run, "")
    for stage, name, path in (
        ("generate", "questions", moved.questions),
        ("validate", "knowledge_base", moved.knowledge_base),
    ):
        noted = {"inputs": {name: {"uri": "gone", "sha256": digest(path)}}}
        run.records.mkdir(exist_ok=True)
        (run.records / f"{stage}.json").write_text(json.dumps(noted))
    assert with_run_files(moved, run, "") == moved
    with pytest.raises(ConfigError, match=r"q\.jsonl holds other bytes"):
        with_run_files(inputs(tmp_path / "moved", "怎么洗"), run, "")


def test_a_plan_says_that_a_run_could_not_sign_and_writes_nothing(
    tmp_path: Path, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config, keys = inputs(Path("data")), tmp_path / "keys"
    assert config.questions
    rows = [{"question": f"怎么吃{at}", "split": split} for split in ("train", "dev", "test") for at in range(160)]
    config.questions.write_text("".join(json.dumps({**row, "gold": "k1"}) + "\n" for row in rows))
    monkeypatch.setenv(KEYS_VARIABLE, str(keys))
    keys.mkdir()
    (keys / "releaser.pem").touch()
    before = sorted(tmp_path.rglob("*"))

    ended = here("plan", "fivedoctors", "--questions", config.questions, "--knowledge-base", config.knowledge_base)

    assert ended.code == 2 and "builder" in ended.errors
    assert sorted(tmp_path.rglob("*")) == before
