"""The threshold of as_asked can be chosen by rows of dev with gold."""

from pathlib import Path

import pytest

from components.evaluation.rewriter.as_asked_table import by_threshold, read_dev
from qinglan.rows.prompt_parquet import ParquetRows
from qinglan.rows.rows import Hit, Retrieval, ValidatedRewrite
from qinglan.rows.training_rows import ppo_row
from tests.models.validated_rows import validated


def retrieval(score: float | None, rank: int | None) -> Retrieval:
    hits = (Hit(id="k1", reranker_score=0.5, query_score=score),)
    return Retrieval(query="q", hits=hits, top1_score=0.5, count=1, gold_rank=rank)


def dev_row(score: float | None, rank: int | None, gold: tuple[str, ...] = ("k1",)) -> ValidatedRewrite:
    return validated(gold=gold, split="dev", plain=retrieval(score, rank), rewritten=retrieval(0.9, 1))


def written(folder: Path, *rows: ValidatedRewrite) -> Path:
    with ParquetRows(folder / "dev.parquet") as add:
        for row in rows:
            add.add(ppo_row(row, "dev"))
    return folder


def test_each_threshold_says_how_many_questions_it_takes_and_how_many_of_them_are_right(tmp_path: Path) -> None:
    folder = written(tmp_path, dev_row(0.95, 1), dev_row(0.85, 2), dev_row(0.3, 1), dev_row(0.99, 1, gold=()))

    table = {line["threshold"]: line for line in by_threshold(read_dev(folder))}

    assert table[0.9] == {"threshold": 0.9, "rows": 3, "taken": 1, "as_asked": 1.0, "teacher": 1.0}
    assert (table[0.8]["taken"], table[0.8]["as_asked"], table[0.8]["teacher"]) == (2, 0.5, 1.0)


@pytest.mark.parametrize("rows", [[], [dev_row(None, 1)]])
def test_without_scores_there_is_no_table(tmp_path: Path, rows: list[ValidatedRewrite]) -> None:
    assert by_threshold(read_dev(written(tmp_path, *rows))) == []


def test_a_threshold_that_takes_no_question_has_no_share(tmp_path: Path) -> None:
    lines = by_threshold(read_dev(written(tmp_path, dev_row(0.6, 1))))

    assert (lines[-1]["taken"], lines[-1]["as_asked"]) == (0, None)
