"""A run's folder is its own: nobody else's files, and no other run's inputs, are written over."""

from pathlib import Path

import pytest

from pipelines.config import dump_config, load_config
from pipelines.execution import run_lock
from pipelines.preflight import with_run_files
from pipelines.rewriter import RunConfig
from pipelines.rundir import RunDir
from qinglan.errors import ConfigError
from tests.pipelines.conftest import Here


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
    config, theirs = inputs(tmp_path / "data"), tmp_path / "thesis"
    theirs.mkdir()
    (theirs / "chapter.docx").write_text("mine")
    words = ("--questions", config.questions, "--knowledge-base", config.knowledge_base, "--out", theirs)

    ended = here("run", "fivedoctors", *words)

    assert (
        ended.code == 2
        and "holds files that are no run's" in ended.errors
        and "Give --out a new folder" in ended.errors
    )
    assert [path.name for path in theirs.iterdir()] == ["chapter.docx"]
    with pytest.raises(ConfigError, match="no run's"), run_lock(RunDir(theirs)):
        pass
    (tmp_path / "empty").mkdir()
    with_run_files(config, RunDir(tmp_path / "empty"), "")


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

    with_run_files(inputs(tmp_path / "copy"), run, "")
    with_run_files(inputs(tmp_path / "data", "怎么洗"), run, "")
    monkeypatch.chdir(tmp_path)
    with_run_files(inputs(Path("data")), run, "")
