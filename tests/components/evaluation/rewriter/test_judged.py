"""By labels, the examiner judges the first passages of all systems alike where the sheet names no gold."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from components.evaluation.rewriter import stage
from components.evaluation.rewriter.config import EvaluateConfig
from components.evaluation.rewriter.report import build_report, draw_examples, to_markdown
from components.evaluation.rewriter.score_systems import fixed_queries, score_all
from qinglan.evaluation.gates.rewriter_gate import GateConfig, decide
from qinglan.evaluation.pages.report import write_report
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

BY_LABELS = CONFIG.model_copy(update={"gate": GateConfig(by="labels", rows=30)})


def evaluate(folder: Path, config: EvaluateConfig) -> Evaluated:
    """RL always finds the right passage, the teacher forgets the product in every third row. One row keeps its gold;
    the label stage called another passage of the rest right."""
    knowledge_base = write_knowledge_base(folder / "kb.jsonl")
    rag = WordRag(knowledge_base)
    with_gold, *others = locked_rows(rag.snapshot)
    misled = {"gold": (), "labels": (Label(id="far", grade=3),)}
    rows = [with_gold, *(row.model_copy(update=misled) for row in others)]
    titles = [row.gold[0].replace("/", " ") for row in (with_gold, *others)]
    writings = {"sft": writing([row.rewritten_query for row in rows]), "rl": writing(titles)}
    texts = {**fixed_queries(rows), **{name: student.texts for name, student in writings.items()}}
    predictions = folder / "predictions.jsonl"
    with gateway(folder, knowledge_base, rag) as url:
        scored = score_all(rows, texts, {}, predictions, config, url, by=config.gate.by)
    kinds = [("complete",)] * len(rows)
    evaluation = stage.build_evaluation(rows, kinds, {}, writings, scored, ORIGINS, config)
    return Evaluated(orjson.loads(orjson.dumps(evaluation)), predictions, rag)


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Evaluated:
    return evaluate(tmp_path_factory.mktemp("judged"), BY_LABELS)


def test_rows_with_gold_and_judged_rows_count_together_and_stand_apart(judged: Evaluated) -> None:
    teacher, rl = (judged.value["systems"][name] for name in ("teacher", "rl"))

    assert (rl["top1"]["n"], rl["gold_top1"]["n"], rl["pooled_top1"]["n"]) == (12, 1, 11)
    assert rl["top1"]["how"] == "gold, else judged by the examiner"
    assert teacher["first_judged"]["value"] == rl["first_judged"]["value"] == 1.0, "every system alike"
    assert rl["top1"]["value"] > teacher["top1"]["value"]
    assert judged.value["counts"] | {"labelled": 1, "judged": 11} == judged.value["counts"]


def test_labels_made_without_the_students_do_not_count(judged: Evaluated) -> None:
    rows = [orjson.loads(line) for line in judged.predictions.read_bytes().splitlines()]

    assert "labelled_top1" not in judged.value["systems"]["rl"]
    assert all("far" not in row["grades"] for row in rows)
    for row in rows[1:]:
        shown = {answer["hits"][0] for answer in row["systems"].values() if answer["hits"]}
        assert row["grades"].keys() == shown, "the first passages of all systems, and no other"


def test_verdict_report_and_notes_say_that_it_is_judged(judged: Evaluated, tmp_path: Path) -> None:
    verdict = judged.value["verdict"]
    shown, reasons = to_markdown(judged.value), " ".join(verdict["reasons"])
    examples = draw_examples(judged.predictions, "rl", 3)
    write_report(build_report(judged.value, examples), tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")

    assert "right passage first, judged" in reasons
    assert "1 with gold passages, 11 judged by the examiner instead" in shown
    assert "The examiner judged these rows, not people, and the verdict reads its grades." in shown
    assert "Kinds of questions: right passage first, judged" in page
    assert "gold passage first, rows with gold" in page and "gold passage first, points" not in page
    assert sum(map(len, examples.values())) > 1, "rows without gold are shown too"
    assert "without knowing whose it was" in " ".join(judged.value["notes"])


def test_figures_that_were_judged_do_not_pass_a_gate_that_goes_by_gold(judged: Evaluated) -> None:
    by_gold = decide(judged.value, GateConfig(rows=30))

    assert not by_gold.promote
    assert "The examiner judged 11 rows without gold, and this gate goes by gold alone (gate.by)." in by_gold.reasons


@pytest.mark.slow
def test_by_gold_nobody_is_asked_about_a_passage(tmp_path: Path) -> None:
    by_gold: dict[str, Any] = evaluate(tmp_path, CONFIG).value

    assert by_gold["counts"]["judged"] == 0 and by_gold["systems"]["rl"]["top1"]["n"] == 1
    assert "pooled_top1" not in by_gold["systems"]["rl"]
