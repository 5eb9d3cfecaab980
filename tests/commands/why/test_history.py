"""`qinglan why`: every row of a run has a history, from the sheet to the stage that used it or left it out."""

import json
import shutil
from pathlib import Path

import pytest

from commands.why.history import StageNote, note_lines, row_history
from pipelines.execute.cross_fit import fold_run
from pipelines.execute.execution import run_lock
from pipelines.execute.rundir import RunDir, write_json
from pipelines.lines.config import dump_config, load_config
from pipelines.lines.sheet import in_folds
from qinglan.errors import ConfigError, DataError
from qinglan.files.files import dump_line
from qinglan.rows.labels import JudgedPassage, RowLabels
from qinglan.terminal import say
from tests.commands.why.row_history_files import row, write, write_stage_files


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    return write_stage_files(tmp_path_factory.mktemp("run"))


def last(run: RunDir, row_id: str) -> StageNote:
    return row_history(run, row_id)[-1]


def test_a_row_that_is_learned_is_followed_from_its_rewrite_to_its_split(run: RunDir) -> None:
    generate, validate, convert = row_history(run, "learned")

    assert (generate.outcome, generate.detail) == ("虾青素 每日服用频次", "by standin, call c")
    assert validate.outcome == "accepted"
    assert "rewritten: 1 passage, with 0.50, gold passage at 1; scored against the need" in validate.detail
    assert (convert.outcome, convert.detail) == ("train", "in SFT and PPO; the teacher finds its gold passage at 1")


def test_a_rejected_rewrite_is_in_ppo_alone_and_says_why(run: RunDir) -> None:
    _, validate, convert = row_history(run, "rejected")

    assert validate.outcome == "not accepted: nothing found"
    assert convert.detail.startswith("in PPO, not in SFT, which learns accepted rewrites alone")


def test_a_near_duplicate_names_the_row_that_it_repeats(run: RunDir) -> None:
    note = last(run, "twin")

    assert note == StageNote(
        "convert", "left out: near_duplicate", "1.00 alike to row tested of the test split (left_out.jsonl)"
    )


def test_a_row_with_labels_says_what_was_judged(run: RunDir) -> None:
    judged = (JudgedPassage(id="k1", grade=3), JudgedPassage(id="k2", grade=0, source="person"))
    labels = RowLabels(id="learned", tenant_id="fivedoctors", judged=judged, outcome="relevant", calls=4)
    run.shown("labels").write_bytes(dump_line(labels))

    [note] = [note for note in row_history(run, "learned") if note.stage == "label"]

    run.shown("labels").unlink()
    assert (note.outcome, note.detail) == ("relevant", "4 calls; grades: k1 3 (judge), k2 0 (person)")


def test_a_row_of_the_locked_test_ends_with_what_each_system_found(run: RunDir) -> None:
    *_, convert, teacher, rl = row_history(run, "tested")

    assert convert.outcome == "test"
    assert [(note.outcome, note.detail) for note in (teacher, rl)] == [
        ("teacher: old", "gold passage not found"), ("rl: new", "gold passage at 1")
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("row_id", "stage", "outcome"),
    [("refused", "generate", "left out: filtered"), ("long", "ppo", "left out: prompt_too_long")],
)
def test_a_row_that_goes_no_further_says_at_which_stage(run: RunDir, row_id: str, stage: str, outcome: str) -> None:
    note = last(run, row_id)

    assert (note.stage, note.outcome) == (stage, outcome)


@pytest.mark.usefixtures("in_chinese")
def test_words_of_the_sheet_and_of_a_model_are_the_same_in_chinese(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A need may hold the marks that divide our own sentences, and words that a template has."""
    other = RunDir(tmp_path)
    sheet, need = tmp_path / "q.jsonl", "what is it, and why; gold k9"
    row = {
        "id": "r1",
        "question": "in SFT; 1 passage, with 0.50",
        "need": need,
        "gold": "k1",
        "conversation_id": "c1",
    }
    sheet.write_text(json.dumps(row), encoding="utf-8")
    other.link("questions", sheet)
    dump_config(load_config("fivedoctors", "demo"), other.config)

    say(*(line for note in row_history(other, "r1") for line in note_lines(note)))

    assert capsys.readouterr().out.splitlines() == [
        "表格        in SFT; 1 passage, with 0.50",
        "          fivedoctors 的对话 c1；标准段落 k1",
        f"          需求：{need}",
    ]


def test_a_row_that_nobody_knows_and_a_folder_that_is_no_run_are_errors_with_the_next_step(
    run: RunDir, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=r"no row 'nobody'.*rewrites\.jsonl has them all"):
        row_history(run, "nobody")
    with pytest.raises(ConfigError, match="no run there"):
        row_history(RunDir(tmp_path), "learned")
    with run_lock(run):
        run.config.unlink()
    with pytest.raises(ConfigError, match=rf"{run.root}: this run's config\.yaml is missing\. Put it back"):
        row_history(run, "learned")


def test_a_cross_fitted_row_tells_which_fold_it_tests(run: RunDir, tmp_path: Path) -> None:
    folded = RunDir(tmp_path)
    config = load_config("fivedoctors", "demo")
    dump_config(config.model_copy(update={"convert": in_folds(config.convert, 2)}), folded.config)
    for fold, row_id in ((1, "learned"), (2, "rejected")):
        path = fold_run(folded, fold).shown("locked_test")
        path.parent.mkdir(parents=True)
        write(path, [row(row_id)])

    assert row_history(folded, "rejected") == [
        StageNote("convert", "test of fold 2", "rewritten by the model that learned from the others")
    ]


def test_before_generate_has_ended_no_row_is_said_to_be_missing(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    files = {name: tmp_path / name for name in ("questions", "knowledge_base")}
    dump_config(load_config("fivedoctors", "demo", **files), run.config)

    with pytest.raises(DataError, match="generate has not ended"):
        row_history(run, "row-2")
    write_json(run.record, {"status": "running"})
    with pytest.raises(DataError, match=r"generate has not ended[^\n]*\nIts last run was killed"):
        row_history(run, "row-2")


@pytest.mark.parametrize(
    ("row_id", "outcome"),
    [("learned", "accepted"), ("rejected", "not accepted: nothing found")],
)
def test_of_a_run_that_a_stage_stopped_the_stage_its_reason_and_the_row_there_are_told(
    row_id: str, outcome: str, tmp_path: Path
) -> None:
    """The rows of a stage that its own verdict stopped are not shown in files/, and are in its record."""
    run = write_stage_files(tmp_path)
    written = tmp_path / "artifacts" / "validated.jsonl"
    written.parent.mkdir(exist_ok=True)
    run.shown("validated").rename(written)
    for path in (run.shown("locked_test"), run.shown("prompts"), run.shown("chats"), run.shown("left_out")):
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    failure = {"type": "GateHeldError", "message": "The teacher is worse than no rewrite.", "exit_code": 7}
    outputs = {"validated": {"uri": str(written)}}
    write_json(run.records / "validate.json", {"status": "failed", "failure": failure, "outputs": outputs})

    generate, validate, stopped = row_history(run, row_id)

    assert (generate.stage, validate.stage, validate.outcome) == ("generate", "validate", outcome)
    assert (stopped.stage, stopped.detail) == ("validate", "The teacher is worse than no rewrite.")
    assert stopped.outcome == "the run stopped here: no later stage has seen this row"
