"""Rows without gold are measured by labels under names of their own, and no verdict reads them."""

import orjson
import pytest

from components.evaluation.rewriter import stage
from components.evaluation.rewriter.report import to_markdown
from components.evaluation.rewriter.score_systems import fixed_queries, score_all
from qinglan.rows.labels import Label
from tests.components.evaluation.rewriter.sample_evaluation import (
    CONFIG,
    ORIGINS,
    Evaluated,
    WordRag,
    gateway,
    locked_rows,
    write_knowledge_base,
    writing,
)


@pytest.fixture(scope="module")
def by_labels(tmp_path_factory: pytest.TempPathFactory) -> Evaluated:
    """RL always writes product and term, whose passage is labelled; nobody judged the teacher's first passage of one
    row in three or four. One row keeps its gold."""
    folder = tmp_path_factory.mktemp("by_labels")
    knowledge_base = write_knowledge_base(folder / "kb.jsonl")
    rag = WordRag(knowledge_base)
    with_gold, *others = locked_rows(rag.snapshot)
    labels = [(Label(id=row.gold[0], grade=3), Label(id="far", grade=1)) for row in others]
    rows = [
        with_gold.model_copy(update={"labels": (Label(id="far", grade=3),)}),
        *(
            row.model_copy(update={"gold": (), "labels": judged}) for row, judged in zip(others, labels, strict=True)
        ),
    ]  # fmt: skip
    titles = [row.gold[0].replace("/", " ") for row in (with_gold, *others)]
    writings = {"sft": writing([row.rewritten_query for row in rows]), "rl": writing(titles)}
    texts = {**fixed_queries(rows), **{name: one.texts for name, one in writings.items()}}
    predictions = folder / "predictions.jsonl"
    with gateway(folder, knowledge_base, rag) as url:
        scored = score_all(rows, texts, {}, predictions, CONFIG, url)
    evaluation = stage.build_evaluation(rows, [()] * len(rows), {}, writings, scored, ORIGINS, CONFIG)
    return Evaluated(orjson.loads(orjson.dumps(evaluation)), predictions, rag)


def test_labels_are_measured_apart_from_gold(by_labels: Evaluated) -> None:
    systems = by_labels.value["systems"]

    assert (systems["rl"]["top1"]["n"], systems["rl"]["labelled_top1"]["n"]) == (1, 11)
    assert systems["rl"]["labelled_top1"]["value"] == systems["rl"]["condensed_top1"]["value"] == 1.0
    assert systems["rl"]["labelled_top1"]["how"] == "labels by judges, not gold"
    teacher = systems["teacher"]
    assert teacher["labelled_top1"]["value"] == teacher["first_judged"]["value"] == pytest.approx(8 / 11)
    assert teacher["condensed_top1"]["value"] > teacher["labelled_top1"]["value"], "unjudged is not irrelevant"


def test_differences_by_labels_stand_beside_those_by_gold(by_labels: Evaluated) -> None:
    paired = by_labels.value["paired"]["rl_vs_teacher"]

    assert (paired["n"], paired["labelled_top1"]["n"]) == (1, 11)
    assert paired["labelled_top1"]["difference"] == pytest.approx(3 / 11)


def test_the_gate_holds_whatever_labels_say(by_labels: Evaluated) -> None:
    verdict = by_labels.value["verdict"]

    assert not verdict["promote"]
    assert "Too few: 1 queries with gold passages were compared" in " ".join(verdict["reasons"])


def test_the_report_says_that_these_figures_are_judged(by_labels: Evaluated, evaluated: Evaluated) -> None:
    shown, usual = to_markdown(by_labels.value), to_markdown(evaluated.value)

    assert "Judges labelled these passages, not people; no verdict reads these figures." in shown
    assert "labelled passage first, unjudged ones left out" in shown
    notes = " ".join(by_labels.value["notes"])
    assert "11 of them have labels by judges, which are not gold" in notes
    assert "nobody judged 27% of the teacher's first passages" in notes
    assert "labelled passage first" not in usual, "where every row has gold nothing is said of labels"
