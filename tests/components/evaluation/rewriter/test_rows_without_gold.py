"""Rows without gold: judged by the examiner if the gate goes by labels, else measured by labels beside it."""

from pathlib import Path

import orjson
import pytest

from components.evaluation.rewriter.report import build_report, draw_examples, to_markdown
from qinglan.evaluation.gates.rewriter_gate import GateConfig
from qinglan.evaluation.pages.report import render
from qinglan.rows.labels import Label
from qinglan.rows.rows import ValidatedRewrite
from tests.components.evaluation.rewriter.sample_evaluation import (
    CONFIG,
    Evaluated,
    WordRag,
    evaluate_rows,
    locked_rows,
    titles,
    write_knowledge_base,
)
from tests.screens.golden import check_golden

BY_LABELS = CONFIG.model_copy(update={"gate": GateConfig(by="labels", rows=30)})
FAR = Label(id="far", grade=3)
"""A label of the label stage that names another passage than the right one."""


def sample(folder: Path) -> list[ValidatedRewrite]:
    return locked_rows(WordRag(write_knowledge_base(folder / "kb.jsonl")).snapshot)


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Evaluated:
    """The gate goes by labels. RL always finds the right passage; one row keeps its gold."""
    folder = tmp_path_factory.mktemp("judged")
    with_gold, *rest = rows = sample(folder)
    misled = (row.model_copy(update={"gold": (), "labels": (FAR,)}) for row in rest)
    return evaluate_rows(folder, [with_gold, *misled], titles(rows), config=BY_LABELS)


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> Evaluated:
    """The gate goes by gold. RL's first passage is labelled, three of the teacher's are not; one row keeps gold."""
    folder = tmp_path_factory.mktemp("labelled")
    with_gold, *rest = rows = sample(folder)
    rows_with_labels = [with_gold.model_copy(update={"labels": (FAR,)})]
    for row in rest:
        labels = (Label(id=row.gold[0], grade=3), Label(id="far", grade=1))
        rows_with_labels.append(row.model_copy(update={"gold": (), "labels": labels}))
    return evaluate_rows(folder, rows_with_labels, titles(rows))


def test_judged_rows_and_rows_with_gold_count_together_and_apart(judged: Evaluated) -> None:
    teacher, rl = (judged.value["systems"][name] for name in ("teacher", "rl"))

    assert (rl["top1"]["n"], rl["gold_top1"]["n"], rl["pooled_top1"]["n"]) == (12, 1, 11)
    assert teacher["first_judged"]["value"] == rl["first_judged"]["value"] == 1.0, "every system alike"
    assert rl["top1"]["value"] > teacher["top1"]["value"]
    assert judged.value["counts"] | {"labelled": 1, "judged": 11} == judged.value["counts"]


def test_the_examiner_grades_the_first_passages_and_labels_do_not_count(judged: Evaluated) -> None:
    first, *rows = [orjson.loads(line) for line in judged.predictions.read_bytes().splitlines()]

    assert first["grades"] == {} and "labelled_top1" not in judged.value["systems"]["rl"]
    for row in rows:
        shown = {answer["hits"][0] for answer in row["systems"].values() if answer["hits"]}
        assert row["grades"].keys() == shown, "the first passages of all systems, and no other"


def test_the_page_of_judged_rows(judged: Evaluated) -> None:
    examples = draw_examples(judged.predictions, "rl", 3)
    check_golden(Path(__file__).parent / "golden/judged.txt", render(build_report(judged.value, examples)))


def test_by_gold_labels_are_measured_apart_and_the_verdict_ignores_them(labelled: Evaluated) -> None:
    systems, paired = labelled.value["systems"], labelled.value["paired"]["rl_vs_teacher"]
    teacher, verdict = systems["teacher"], labelled.value["verdict"]

    assert (systems["rl"]["top1"]["n"], systems["rl"]["labelled_top1"]["n"]) == (1, 11)
    assert labelled.value["counts"]["judged"] == 0 and "pooled_top1" not in systems["rl"]
    assert systems["rl"]["labelled_top1"]["value"] == systems["rl"]["condensed_top1"]["value"] == 1.0
    assert teacher["labelled_top1"]["value"] == teacher["first_judged"]["value"] == pytest.approx(8 / 11)
    assert teacher["condensed_top1"]["value"] > teacher["labelled_top1"]["value"], "unjudged is not irrelevant"
    assert (paired["n"], paired["labelled_top1"]["n"]) == (1, 11)
    assert paired["labelled_top1"]["difference"] == pytest.approx(3 / 11)
    assert "Too few: 1 queries with gold passages were compared" in " ".join(verdict["reasons"])


def test_the_page_of_labelled_rows_says_that_judges_labelled_them(labelled: Evaluated, evaluated: Evaluated) -> None:
    check_golden(Path(__file__).parent / "golden/labelled.txt", render(build_report(labelled.value)))
    assert "labelled passage first" not in to_markdown(evaluated.value)
