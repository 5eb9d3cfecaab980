"""Cross-fitting of a sheet that is too small for a locked test, as parts of one run on this machine.

run             generate ... ppo        the released model, which learns from all conversations
  folds/fold-1  convert ... ppo         a sibling for each fold, which learns from the other folds
  folds/fold-2  ...
run             evaluate gate register  each row is rewritten by the sibling that did not learn from it

All parts call the run's own gateway, so they share the paid answers of the data stages.
"""

import json

from components.evaluation.rewriter.folds import FOLDS_VARIABLE
from pipelines.execute.execution import Part, prepare_run
from pipelines.execute.rundir import RunDir
from pipelines.lines.line import LINEAGE
from pipelines.lines.rewriter import REWRITER, RunConfig
from pipelines.lines.sheet import Sheet, in_folds
from qinglan.run_id import RUN_VARIABLE

FOLD_STAGES = ("convert", "augment", "base", "sft", "ppo")
"""The stages that are repeated for each fold."""

DATA = ("validated", "labels")


def cross_fitted_parts(config: RunConfig, run: RunDir, stages: tuple[str, ...], only: bool) -> list[Part]:
    """Return the parts of a cross-fitted run; empty if all stages are executed together."""
    count = config.convert.folds
    if not count or "evaluate" not in stages:
        return []
    folds = {number: fold_run(run, number) for number in range(1, count + 1)}
    environment = {FOLDS_VARIABLE: json.dumps([str(fold.files.resolve()) for fold in folds.values()])}
    if only:
        return [Part(run, stages, True, environment=environment)]
    middle = stages.index("evaluate")
    parts = [Part(run, stages[:middle], False)]
    # A public base is the same for all folds. A tiny base is trained on texts of the prompts, so each fold makes
    # its own without the conversations that it is tested on.
    shared = config.base.source == "hub"
    repeated = tuple(stage for stage in FOLD_STAGES if not (shared and stage == "base"))
    for number, fold in folds.items():
        settings = config.model_copy(update={"convert": in_folds(config.convert, count, number)})
        prepare_run(REWRITER, settings, fold, repeated, alone=True)
        borrowed = (*DATA, LINEAGE, *(["base_model"] if shared else []))
        name = {RUN_VARIABLE: f"{run.root.resolve().name}/{fold.root.name}"}
        parts.append(Part(fold, repeated, True, borrowed, environment=name, title=f"Fold {number} of {count}"))
    return [*parts, Part(run, stages[middle:], True, environment=environment)]


def fold_run(run: RunDir, number: int) -> RunDir:
    return RunDir(run.root / "folds" / f"fold-{number}")


def cross_fit_words(config: RunConfig, sheet: Sheet) -> str:
    """Explain how this sheet is tested in folds, for plan and run; empty if a test is locked away."""
    if not (count := len(sheet.folds)):
        return ""
    return (
        f"Cross-fitted in {count} folds (`cross_fit`): a locked test would have fewer labelled rows than "
        f"evaluate.gate.rows, {config.evaluate.gate.rows:,}. Each of {sheet.labelled_test_rows:,} labelled rows is "
        f"rewritten by a model that did not learn from it; SFT and PPO run {count + 1} times, which calls, hours and "
        "disk of a plan count, and the released model learns from all rows."
    )
