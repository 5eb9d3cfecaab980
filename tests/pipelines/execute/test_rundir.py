"""A run's files/: what people open is there by a name that programs understand, and their own files are left."""

from pathlib import Path

import pytest

from commands.run.run import hide_release
from pipelines.execute.rundir import RunDir
from tests.screens.browser import open_page

PAGE = (
    "<!doctype html><meta charset=utf-8><title>A report</title><h1>Promote</h1><script>document.title += '!'</script>"
)


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return RunDir(tmp_path / "run")


def make_artifact(run: RunDir, task: str, name: str, content: str) -> Path:
    """A file as KFP names it: without an ending."""
    path = run.artifacts / task / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8")
    return path


@pytest.mark.slow
def test_a_browser_shows_a_runs_page_and_not_its_source(run: RunDir, tmp_path: Path) -> None:
    run.link("report", make_artifact(run, "evaluate", "report", PAGE))
    run.link("predictions", make_artifact(run, "evaluate", "predictions", '{"id": "q1"}\n'))

    page = open_page(run.files / "report.html", tmp_path / "browser")
    lines = open_page(run.files / "predictions.jsonl", tmp_path / "browser")

    assert (page.title, page.text.strip()) == ("A report!", "Promote")
    assert lines.text.strip() == '{"id": "q1"}'


def test_a_sheet_that_a_person_fills_in_is_another_file_than_the_signed_one(run: RunDir) -> None:
    signed = make_artifact(run, "evaluate", "blind_sample", "a sheet")
    run.link("blind_sample", signed)

    with (run.files / "blind_sample.xlsx").open("a") as sheet:
        sheet.write(", filled in")
    run.link("blind_sample", signed)

    assert signed.read_text() == "a sheet" and run.artifact("blind_sample") == signed
    assert (run.files / "blind_sample.xlsx").read_text() == "a sheet, filled in"


def test_a_new_artifact_is_shown_in_place_of_the_old_one_and_a_stale_name_goes(run: RunDir) -> None:
    for task in ("first", "second"):
        run.link("report", make_artifact(run, task, "report", task))
    assert (run.files / "report.html").read_text() == "second"

    run.unlink(["report"])

    assert list(run.files.iterdir()) == []


def test_a_release_that_is_hidden_without_a_new_one_to_come_is_said(
    run: RunDir, capsys: pytest.CaptureFixture[str]
) -> None:
    messages: list[bool] = []
    for stages in (("ppo",), ("gate", "register"), ("ppo",)):
        if stages != ("ppo",) or not messages:
            run.link("release", make_artifact(run, "register", "release", "bytes"))
        hide_release(run, stages)
        messages.append("files/release is gone" in capsys.readouterr().err)
        assert not run.shown("release").is_symlink()

    assert messages == [True, False, False]


def test_a_sheet_from_outside_is_shown_where_it_is_and_nothing_is_written_beside_it(
    run: RunDir, tmp_path: Path
) -> None:
    sheet = tmp_path / "data" / "asked"
    sheet.parent.mkdir()
    sheet.write_text("rows")

    run.link("questions", sheet)

    assert run.artifact("questions") == (run.files / "questions.xlsx").resolve() == sheet
    assert list(sheet.parent.iterdir()) == [sheet]


def test_questions_given_as_json_lines_are_shown_as_such_and_only_the_newest_sheet_is(
    run: RunDir, tmp_path: Path
) -> None:
    sheet, lines = tmp_path / "mine.xlsx", tmp_path / "mine.jsonl"
    for path in (sheet, lines):
        path.write_text("rows")

    run.link("questions", sheet)
    run.link("questions", lines)
    run.link("questions", run.files / "questions.jsonl")  # by the link itself

    assert [path.name for path in run.files.iterdir()] == ["questions.jsonl"]
    assert run.artifact("questions") == lines
    run.link("questions", sheet)
    assert [path.name for path in run.files.iterdir()] == ["questions.xlsx"]
    assert run.artifact("questions") == sheet


def test_a_real_file_that_a_person_put_there_is_left(run: RunDir) -> None:
    run.files.mkdir(parents=True)
    (run.files / "report.html").write_text("mine")

    run.link("report", make_artifact(run, "evaluate", "report", "new"))
    run.unlink(["report"])

    assert (run.files / "report.html").read_text() == "mine"
    assert run.artifact("report") == run.files / "report.html"
