"""`qinglan why ROW_ID RUN`: trace one row of a run through its stages, from the run's files."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from pipelines.execute.cross_fit import fold_run
from pipelines.execute.execution import state_in_words
from pipelines.execute.recorded_config import read_rewriter_config
from pipelines.execute.rundir import RunDir
from pipelines.lines.rewriter import REWRITER, RunConfig
from qinglan.errors import DataError
from qinglan.files.files import read_jsonl
from qinglan.lineage.trace.evidence import mapping_or_empty
from qinglan.llm.lost_rows import ROLES, remedy
from qinglan.rewriter.card import CARD, read_card
from qinglan.rows.labels import RowLabels
from qinglan.rows.questions import read_questions
from qinglan.rows.rows import QuarantinedRow, Question, Retrieval, Rewrite, ValidatedRewrite
from qinglan.terminal import Verbatim, in_language, labelled

SPLITS = ("train", "dev")
CAPTIONS = {"sheet": "need", "augment": "rewrite"}
"""Caption of the quoted text in a stage's note, by stage."""

KIND_NOTES = {"hindsight": "a rewrite in hindsight", "pseudo": "a question from a passage"}
"""Descriptions of the teacher's further rows, by kind."""


class StageNote(NamedTuple):
    """The outcome of one row in one stage."""

    stage: str
    outcome: str
    detail: str
    quote: str = ""
    """Text from the sheet or a model, which is never translated."""

    quoted: bool = False
    """True if the outcome is also text from the sheet or a model."""


def row_history(run: RunDir, row_id: str) -> list[StageNote]:
    """Collect the notes of every stage that has run, in the order of the stages."""
    config = read_rewriter_config(run)
    notes = [note for read in STAGES for note in read(run, row_id, config)]
    notes += _stopped(run) if notes else []
    if not notes and not run.shown("rewrites").exists():
        raise DataError(
            f"{run.root}: generate has not ended, so nothing is known of any row. The same `qinglan run` goes on, "
            "and what was paid is not paid again.", *filter(None, [state_in_words(run)])
        )  # fmt: skip
    if not notes:
        raise DataError(
            f"{run.root}: no row {row_id!r}. The ids are those of the sheet's id column, or `row-N` for its row N; "
            f"{run.shown('rewrites')} has them all."
        )
    return notes


def note_lines(note: StageNote) -> Iterator[str]:
    """Format the lines of a note; the text of a question, need or rewrite is not translated."""
    stage = in_language(note.stage) if note.stage == "sheet" else note.stage  # the others are names of stages
    yield Verbatim(f"{stage:<9} {note.outcome if note.quoted else in_language(note.outcome)}")
    yield Verbatim(f"          {in_language(note.detail)}")
    if note.quote:
        yield Verbatim(f"          {labelled(in_language(CAPTIONS[note.stage]), Verbatim(note.quote))}")


def _stopped(run: RunDir) -> list[StageNote]:
    """Return a note on the stage that stopped the run, with the reason; empty if none did."""
    for stage in REWRITER.stages:
        record = run.step_record(stage) or {}
        if failure := record.get("failure") if record.get("status") == "failed" else None:
            detail = " ".join(str(failure["message"] or failure.get("type", "")).splitlines())
            return [StageNote(stage, "the run stopped here: no later stage has seen this row", detail)]
    return []


def _output(run: RunDir, stage: str, name: str) -> Path:
    """Return the path of a stage's output: the link in files/ or, if the stage failed after writing the output, the
    path in the stage's record."""
    record = run.step_record(stage) or {}
    written = mapping_or_empty(mapping_or_empty(record.get("outputs")).get(name)).get("uri")
    return Path(written) if record.get("status") == "failed" and written else run.shown(name)


def _sheet(run: RunDir, row_id: str, config: RunConfig) -> Iterator[StageNote]:
    path = run.shown("questions")
    if not path.exists():
        return
    for row in read_questions(path, config.generate.columns, config.generate.tenant_id):
        if row.id == row_id and isinstance(row, Question):
            facts = [f"conversation {row.conversation_id} of {row.tenant_id}"]
            facts += [f"gold {', '.join(row.gold)}"] if row.gold else []
            yield StageNote("sheet", row.question, "; ".join(facts), row.need, quoted=True)


def _generate(run: RunDir, row_id: str, config: RunConfig) -> Iterator[StageNote]:
    for row in _rows(run.shown("rewrites"), Rewrite, row_id):
        yield StageNote("generate", row.rewritten_query, f"by {row.teacher}, call {row.call[:12]}", quoted=True)
    yield from _set_aside(run.shown("generate_quarantine"), "generate", row_id)


def _validate(run: RunDir, row_id: str, config: RunConfig) -> Iterator[StageNote]:
    for row in _rows(_output(run, "validate", "validated"), ValidatedRewrite, row_id):
        outcome = "accepted" if row.accepted else f"not accepted: {row.reason}"
        retrievals = f"plain: {_retrieval_line(row.plain)}; rewritten: {_retrieval_line(row.rewritten)}"
        detail = f"{retrievals}; scored against the {row.scored_against}"
        yield StageNote("validate", outcome, detail)
    yield from _set_aside(_output(run, "validate", "validate_quarantine"), "validate", row_id)


def _retrieval_line(retrieval: Retrieval) -> str:
    rank = f", gold passage at {retrieval.gold_rank}" if retrieval.gold_rank else ""
    if retrieval.count == 1:
        return f"1 passage, with {retrieval.top1_score:.2f}{rank}"
    return f"{retrieval.count:,} passages, the first with {retrieval.top1_score:.2f}{rank}"


def _label(run: RunDir, row_id: str, config: RunConfig) -> Iterator[StageNote]:
    for row in _rows(run.shown("labels"), RowLabels, row_id):
        grades = ", ".join(f"{passage.id} {passage.grade} ({passage.source})" for passage in row.judged)
        yield StageNote("label", row.outcome, f"{row.calls} calls; grades: {grades or 'none'}")


def _convert(run: RunDir, row_id: str, config: RunConfig) -> Iterator[StageNote]:
    yield from _set_aside(run.shown("left_out"), "convert", row_id)
    for _ in _rows(run.shown("locked_test"), ValidatedRewrite, row_id):
        yield StageNote("convert", "test", "locked away: no training sees it")
    for number in range(1, config.convert.folds + 1):
        for _ in _rows(fold_run(run, number).shown("locked_test"), ValidatedRewrite, row_id):
            yield StageNote(
                "convert", f"test of fold {number}", "rewritten by the model that learned from the others"
            )
    for split in SPLITS:
        if row := _parquet_row(run.shown("prompts") / f"{split}.parquet", row_id):
            path = run.shown("chats") / f"{split}.jsonl"
            chats = map(orjson.loads, path.read_bytes().splitlines() if path.exists() else ())
            learned = any(chat["metadata"]["id"] == row_id for chat in chats)
            why = "" if learned else ", not in SFT, which learns accepted rewrites alone"
            rank = row["teacher_retrieval"]["gold_rank"]
            teacher_rank = f"; the teacher finds its gold passage at {rank}" if rank else ""
            yield StageNote("convert", split, f"{'in SFT and PPO' if learned else 'in PPO'}{why}{teacher_rank}")


def _augment(run: RunDir, row_id: str, config: RunConfig) -> Iterator[StageNote]:
    yield from _set_aside(run.shown("augment_left_out"), "augment", row_id)
    path, card = run.shown("augmented_chats") / "train.jsonl", run.shown("sft_model") / CARD
    if path.exists():
        left_out = card.is_file() and read_card(card.parent).leaves_out_further_rows
        result = "left out of SFT: less was found with such rows on dev" if left_out else "in SFT"
        for row in map(orjson.loads, path.read_bytes().splitlines()):
            if row["metadata"]["id"] == row_id and row["metadata"].get("kind", "sheet") != "sheet":
                kind, answer = KIND_NOTES[row["metadata"]["kind"]], row["messages"][-1]["content"]
                yield StageNote("augment", result, kind, answer)


def _trainings(run: RunDir, row_id: str, config: RunConfig) -> Iterator[StageNote]:
    for stage in ("sft", "ppo"):
        yield from _set_aside(run.shown(f"{stage}_log") / "left_out.jsonl", stage, row_id)


def _evaluate(run: RunDir, row_id: str, config: RunConfig) -> Iterator[StageNote]:
    path = run.shown("predictions")
    if not path.exists():
        return
    with path.open("rb") as lines:
        for row in map(orjson.loads, lines):
            if row["id"] == row_id:
                for name, system in row["systems"].items():
                    rank = f"gold passage at {system['rank']}" if system["rank"] else "gold passage not found"
                    gold = rank if row["gold"] else "no gold passage is known"
                    yield StageNote("evaluate", f"{name}: {system['rewrite']}", gold, quoted=True)


def _set_aside(path: Path, stage: str, row_id: str) -> Iterator[StageNote]:
    for row in _rows(path, QuarantinedRow, row_id):
        lost = row.stage == stage and stage in ROLES
        advice = f" To do: {remedy(stage, row.reason)}; then the same run asks for it again." if lost else ""
        yield StageNote(stage, f"left out: {row.reason}", f"{row.detail} ({path.name}){advice}")


def _rows(path: Path, kind: Any, row_id: str) -> Iterator[Any]:
    """Read the rows with this id; none if the stage has not run."""
    if path.exists():
        yield from (row for _, row in read_jsonl(path, kind) if row.id == row_id)


def _parquet_row(path: Path, row_id: str) -> dict[str, Any] | None:
    import pyarrow.parquet

    if not path.exists():
        return None
    rows = pyarrow.parquet.read_table(path, columns=["extra_info"]).column("extra_info").to_pylist()
    return next((row for row in rows if row["id"] == row_id), None)


STAGES: tuple[Callable[[RunDir, str, RunConfig], Iterator[StageNote]], ...] = (
    _sheet, _generate, _validate, _label, _convert, _augment, _trainings, _evaluate,
)  # fmt: skip
