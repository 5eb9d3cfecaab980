"""Cross-fitted rows: each is rewritten by the models of its own fold, and all are compared as one test."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest

from components.evaluation.rewriter import stage
from components.evaluation.rewriter.config import EvaluateConfig
from components.evaluation.rewriter.folds import (
    FILES,
    FOLDS_VARIABLE,
    fold_inputs,
    fold_papers,
    read_folds,
)
from components.evaluation.rewriter.student_timing import StudentOutput
from qinglan.errors import DataError
from qinglan.files.digests import digest
from qinglan.files.files import dump_line
from qinglan.lineage.signing.dsse import ENVELOPE_SUFFIX
from qinglan.rewriter.card import FURTHER_ROWS, RewriterCard, write_card
from qinglan.rows.rows import ValidatedRewrite
from qinglan.rows.training_rows import WITHOUT_FURTHER
from tests.components.evaluation.rewriter.sample_evaluation import (
    CONFIG,
    WordRag,
    gateway,
    locked_rows,
    write_knowledge_base,
    writing,
)
from tests.components.evaluation.rewriter.test_leak import write_training
from tests.components.evaluation.rewriter.test_stage import outputs, parents


def write_fold(folder: Path, test: Sequence[ValidatedRewrite], learned: Sequence[ValidatedRewrite]) -> Path:
    """A fold's folder as a run leaves it; a model writes its own folder's name."""
    folder.mkdir()
    (folder / FILES["locked_test"]).write_bytes(b"".join(map(dump_line, test)))
    training = write_training(folder, list(learned), list(learned))
    training["sft"].rename(folder / FILES["augmented_chats"])
    training["ppo"].rename(folder / FILES["augmented_prompts"])
    for name, kind in (("sft_model", "augmented_chats"), ("rl_model", "augmented_prompts")):
        (folder / name).mkdir()
        before = {"sft_model": digest(folder / "sft_model")} if name == "rl_model" else {}
        made_from = {"base_model": "8" * 64, **before, **parents(folder / FILES[kind])}
        write_card(folder / name, RewriterCard(stage="sft", parents=made_from))
    (folder / "lineage").mkdir()
    (folder / "lineage" / f"sft-{folder.name}{ENVELOPE_SUFFIX}").write_text(folder.name)
    return folder


def by_folder(
    models: Mapping[str, Path], rows: Sequence[ValidatedRewrite], config: EvaluateConfig
) -> dict[str, StudentOutput]:
    return {name: writing([f"{row.need} {folder.parent.name}" for row in rows]) for name, folder in models.items()}


@pytest.fixture
def folds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Two folds of the sample's conversations, and the folder of the released model, which learned from both."""
    rows = locked_rows(WordRag(write_knowledge_base(tmp_path / "kb.jsonl")).snapshot)
    first, second = rows[:6], rows[6:]
    folders = [
        write_fold(tmp_path / "fold-1", first, second),
        write_fold(tmp_path / "fold-2", second, first),
        write_fold(tmp_path / "released", [], rows),
    ]
    monkeypatch.setenv(FOLDS_VARIABLE, json.dumps([str(folder) for folder in folders[:2]]))
    monkeypatch.setattr(stage, "rewrite_all", by_folder)
    return folders


def evaluate(tmp_path: Path, released: Path) -> Any:
    knowledge_base = tmp_path / "kb.jsonl"
    paths = {name: released / file for name, file in FILES.items()}
    out = outputs(tmp_path)
    with gateway(tmp_path, knowledge_base, WordRag(knowledge_base)) as url:
        stage.evaluate(
            paths["locked_test"], {"sft": paths["sft_model"], "rl": paths["rl_model"]},
            {"sft": paths["augmented_chats"], "ppo": paths["augmented_prompts"]}, {}, out, CONFIG, url, read_folds(),
        )  # fmt: skip
    return out


@pytest.mark.slow
def test_each_row_is_rewritten_by_the_model_that_did_not_learn_from_it(tmp_path: Path, folds: list[Path]) -> None:
    out = evaluate(tmp_path, folds[-1])

    rewrites = [orjson.loads(line)["systems"]["rl"]["rewrite"] for line in out.predictions.read_bytes().splitlines()]
    assert [rewrite.rpartition(" ")[2] for rewrite in rewrites] == ["fold-1"] * 6 + ["fold-2"] * 6
    value = orjson.loads(out.evaluation.read_bytes())
    assert (value["cross_fitted"], value["counts"]["rows"], value["counts"]["conversations"]) == ({"folds": 2}, 12, 4)
    assert value["leaks"]["parts"]["sft"] == {"rows": 14, "same": 0, "alike": 0, "examples": []}
    assert value["digests"]["models"]["rl"] == digest(folds[-1] / "rl_model"), "the released one is the candidate"
    assert {fold["models"]["rl"] for fold in value["digests"]["folds"].values()} == {
        digest(folder / "rl_model") for folder in folds[:2]
    }
    assert value["verdict"]["reasons"][0].startswith("Cross-fitted: 12 questions")
    assert not [reason for reason in value["verdict"]["reasons"] if "digests" in reason]
    page = out.report.read_text(encoding="utf-8")
    assert "12 cross-fitted questions, each rewritten by one of 2 models" in page


@pytest.mark.slow
def test_a_sibling_that_learned_from_its_own_test_stops_everything(tmp_path: Path, folds: list[Path]) -> None:
    (folds[0] / FILES["locked_test"]).write_bytes((folds[1] / FILES["locked_test"]).read_bytes())

    with pytest.raises(DataError, match="trained or selected on"):
        evaluate(tmp_path, folds[-1])


def test_the_record_names_what_came_from_the_folds_and_keeps_their_statements_and_papers(
    tmp_path: Path, folds: list[Path]
) -> None:
    """The list of paid answers of the run's own step stays beside those of the folds' steps."""
    before = tmp_path / "before"
    before.mkdir()
    for name, text in (("paid-augment.jsonl", "run"), ("prices-augment.json", "prices")):
        (before / name).write_text(text)
    for folder in folds[:2]:
        (folder / "lineage" / "paid-augment.jsonl").write_text(f"paid in {folder.name}")
        (folder / "lineage" / "prices-augment.json").write_text("prices")

    inputs, papers = fold_inputs(read_folds()), dict(fold_papers(read_folds(), before))

    assert inputs["fold 2 rl_model"].path == str(folds[1] / "rl_model") and len(inputs) == 2 * len(FILES)
    assert papers == {
        f"sft-fold-{number}{ENVELOPE_SUFFIX}": f"fold-{number}".encode() for number in (1, 2)
    } | {f"paid-augment-fold-{number}.jsonl": f"paid in fold-{number}".encode() for number in (1, 2)}  # fmt: skip


def test_where_sft_left_the_further_rows_out_the_test_is_compared_with_the_rows_before_them(
    folds: list[Path],
) -> None:
    model, chats = folds[0] / FILES["sft_model"], folds[0] / FILES["augmented_chats"]
    assert read_folds()[0].trial.training["sft"] == chats

    write_card(model, RewriterCard(stage="sft", left_out=(FURTHER_ROWS,)))

    assert read_folds()[0].trial.training["sft"] == chats / WITHOUT_FURTHER


def test_a_fold_that_was_not_trained_is_named(folds: list[Path]) -> None:
    (folds[1] / "rl_model").rename(folds[1] / "elsewhere")

    with pytest.raises(DataError, match="fold-2: no rl_model there"):
        read_folds()
