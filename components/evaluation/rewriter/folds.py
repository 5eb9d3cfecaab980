"""Folds of a sheet that is too small for a locked test. Each fold is the test of models that learned from the other
folds.

A fold's models are siblings of the released ones: they are trained with the same settings, from the same base, on the
rows of the other folds. The run passes the folds' folders in QINGLAN_FOLDS.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from components.evaluation.rewriter.student_timing import StudentOutput
from qinglan.errors import DataError
from qinglan.files.files import sha256_file
from qinglan.lineage.signing.dsse import ENVELOPE_SUFFIX
from qinglan.rewriter.card import read_card
from qinglan.rows.training_rows import WITHOUT_FURTHER

FOLDS_VARIABLE = "QINGLAN_FOLDS"
"""Environment variable with a JSON list of folders, one folder with artifacts for each fold, in order. Empty if a
test is locked away."""

FILES = {
    "locked_test": "locked_test.jsonl",
    "augmented_chats": "augmented_sft",
    "augmented_prompts": "augmented_ppo",
    "sft_model": "sft_model",
    "rl_model": "rl_model",
}
"""File or folder of each artifact in a fold's folder, by the name of the artifact in the pipeline."""

NOTES = (
    "Cross-fitted: the sheet is too small to lock a test away. Its conversations lie in folds; each row was "
    "rewritten by a model that was trained on the other folds, as the released one was on all of them. The figures "
    "are of those siblings, which learned from fewer rows than the released model. Nothing here measures the "
    "released model itself: a fault of its own training would not show in these figures. Look at its training "
    "curves, which are in this report, before it serves.",
    "Intervals take conversations as independent of each other; models of different folds share most of their rows, "
    "so the true ones are somewhat wider. Where the run's own RAG service was fitted to labelled rows, rows that are "
    "tested here are among them; it ranks for every system alike.",
)
"""Facts that a reader of cross-fitted figures must know."""


class Trial(NamedTuple):
    """A test, the models that rewrite its questions, and the training rows of these models."""

    test: Path
    models: Mapping[str, Path]
    training: Mapping[str, Path]


class FoldArtifact:
    """An artifact of a fold, with the fields that the record of a step (`recorded`) reads."""

    schema_title = ""

    def __init__(self, path: Path) -> None:
        self.path = self.uri = str(path.resolve())
        self.metadata: dict[str, Any] = {}


class Fold(NamedTuple):
    number: int
    folder: Path

    def input_name(self, name: str) -> str:
        """Return the artifact's name among the evaluation's inputs; `statement_index.FOLD_INPUT` matches such
        names."""
        return f"fold {self.number} {name}"

    @property
    def trial(self) -> Trial:
        paths = {name: self.folder / file for name, file in FILES.items()}
        training = {"sft": paths["augmented_chats"], "ppo": paths["augmented_prompts"]}
        models = {"sft": paths["sft_model"], "rl": paths["rl_model"]}
        return Trial(paths["locked_test"], models, learned_rows(models["sft"], training))


def learned_rows(sft_model: Path, training: Mapping[str, Path]) -> dict[str, Path]:
    """Return the folders of training rows that the models' cards name.

    If SFT left out the teacher's further rows, its folder is the subfolder without these rows. PPO's folder stays the
    same, since its card names the whole file.
    """
    further = {"sft": training["sft"] / WITHOUT_FURTHER} if read_card(sft_model).leaves_out_further_rows else {}
    return {**training, **further}


def read_folds() -> list[Fold]:
    """Return the folds of this run; empty if a test is locked away. Raises a DataError if an artifact is missing."""
    folders = [Path(name) for name in orjson.loads(os.environ.get(FOLDS_VARIABLE) or "[]")]
    for folder in folders:
        if missing := [file for file in FILES.values() if not (folder / file).exists()]:
            raise DataError(
                f"{folder}: no {missing[0]} there, and the sheet is cross-fitted. Run without --only: each fold is "
                "trained before the evaluation."
            )
    return [Fold(number, folder) for number, folder in enumerate(folders, 1)]


def fold_inputs(folds: Sequence[Fold]) -> dict[str, FoldArtifact]:
    """Return the artifacts of all folds, by the names under which the evaluation's record lists them as inputs."""
    return {fold.input_name(name): FoldArtifact(fold.folder / file) for fold in folds for name, file in FILES.items()}


def fold_lineages(folds: Sequence[Fold]) -> dict[str, Path]:
    """Return each fold's folder of signed statements, by the prefix of the fold's input names (such as `fold 1 `)."""
    return {fold.input_name(""): fold.folder / "lineage" for fold in folds}


def fold_papers(folds: Sequence[Fold], before: Path) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of each file in the folds' lineage folders, so that an audit can follow each sibling
    model.

    Files that are already in `before`, the lineage before the evaluation, are left out. Files other than statements
    have the same names in each fold, so the fold's number is added to their names.
    """
    known = {sha256_file(path) for path in before.iterdir()}
    for fold in folds:
        for path in sorted((fold.folder / "lineage").iterdir()):
            if (sha := sha256_file(path)) in known:
                continue
            known.add(sha)
            name = (
                path.name if path.name.endswith(ENVELOPE_SUFFIX) else f"{path.stem}-fold-{fold.number}{path.suffix}"
            )
            yield name, path.read_bytes()


def joined_outputs(outputs: Sequence[Mapping[str, StudentOutput]]) -> dict[str, StudentOutput]:
    """Join each student's rewrites of all trials, as if its sibling models were one model."""
    joined = {}
    for name, first in outputs[0].items():
        parts = [output[name] for output in outputs]
        joined[name] = first._replace(
            texts=[text for part in parts for text in part.texts],
            cut=sum(part.cut for part in parts),
            seconds=sum(part.seconds for part in parts),
            latencies=[seconds for part in parts for seconds in part.latencies],
            otherwise=sum(part.otherwise for part in parts),
            trimmed=sum(part.trimmed for part in parts),
        )
    return joined
