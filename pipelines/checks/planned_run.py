"""Check a run before anything is paid, report all problems at once, and plan a run in its folder."""

from collections.abc import Sequence
from typing import NamedTuple

from pipelines.checks.plan import CallTokens, Plan, count_tokens, make_plan
from pipelines.checks.preflight import (
    base_warnings,
    raise_refusals,
    raise_together,
    refusal_error,
    with_run_files,
)
from pipelines.checks.rag_probe import with_earlier_queries, with_snapshot_queries
from pipelines.checks.readiness import check_readiness, problem_of
from pipelines.checks.sizing.check import check_room
from pipelines.execute.execution import (
    check_deploys,
    check_existing_keys,
    check_machine,
    check_stage_inputs,
    check_tracking,
    recorded_inputs,
    refuse_foreign_folder,
)
from pipelines.execute.recorded_config import check_line
from pipelines.execute.rundir import RunDir
from pipelines.lines.rewriter import REWRITER, RunConfig
from pipelines.lines.sheet import Sheet, with_folds
from pipelines.lines.style import STYLE, StyleRunConfig
from qinglan.config import load_yaml
from qinglan.errors import ConfigError, QinglanError
from qinglan.files.input_paths import path_fault
from qinglan.llm.paid.journal_reader import read_answers_by_model


class CheckedRun(NamedTuple):
    """Settings, sheet, plan and problems of a run; faults of the sheet are in the plan, not in `problems`."""

    config: RunConfig
    sheet: Sheet
    plan: Plan
    problems: Sequence[QinglanError]
    """Faults of the folder, files, hosts, keys and services, and too little memory or disk on this machine."""

    def raise_problems(self) -> None:
        """Raise all problems, and the refusals of the sheet, as one error."""
        refusals = self.plan.promotion.refusals
        if not self.problems:
            raise_refusals(refusals)
        raise_together([*self.problems, *map(refusal_error, refusals)])


def check_run(config: RunConfig, run: RunDir, stages: Sequence[str], only: str = "") -> CheckedRun:
    """Check everything that a run of these stages in the folder needs, and plan it; the folder is not changed.

    If the sheet cannot be counted, the check ends with all problems that were found before.
    """
    problems: list[QinglanError] = []
    try:
        config = with_run_files(config, run, only)
    except QinglanError as error:
        if only:  # the stage's inputs are in the folder, so nothing else can be checked
            raise
        problems.append(error)
    config = with_earlier_queries(config, run.config)
    ready = check_readiness(config, stages)
    problems += ready.missing
    counted: tuple[Sheet, CallTokens] | None = None
    # A sheet can be counted if no file has a problem, except that the knowledge base may be missing.
    if len(ready.by_subject["files"]) == (config.knowledge_base is None):
        try:
            counted = count_tokens(config)
            config = with_folds(config, counted[0])
        except QinglanError as error:
            problems.append(error)
    machine_checks = (lambda: check_room(config, run.root, stages), check_existing_keys)
    problems += filter(None, map(problem_of, machine_checks))
    if counted is None:
        raise_together(problems)
    assert counted is not None  # else there was a problem
    if ready.rag.snapshot_queries:
        config = with_snapshot_queries(config, ready.rag.snapshot_queries)
    earlier = earlier_answers(run, config) if REWRITER.gateway & set(stages) else []
    plan = make_plan(
        config, missing=ready.missing, snapshot=ready.rag.snapshot, stages=stages, counted=counted,
        warnings=(*base_warnings(config, stages), *ready.rag.limits, *earlier),
    )  # fmt: skip
    return CheckedRun(config, counted[0], plan, problems)


def check_style_run(config: StyleRunConfig, run: RunDir, stages: Sequence[str], only: str) -> StyleRunConfig:
    """Check everything that a run of the style line needs; returns the configuration with the run's inputs."""
    problems: list[QinglanError] = []
    with_inputs = config
    try:
        with_inputs = with_style_files(config, run, only)
    except QinglanError as error:
        problems.append(error)
    checks = (
        lambda: check_labelled(config), lambda: check_deploys(config, stages),
        lambda: check_machine(STYLE, config, stages), lambda: check_tracking(STYLE, config, stages),
        lambda: check_room(config, run.root, stages), check_existing_keys,
    )  # fmt: skip
    raise_together([*problems, *filter(None, map(problem_of, checks))])
    return with_inputs


def with_style_files(config: StyleRunConfig, run: RunDir, only: str) -> StyleRunConfig:
    """Return the configuration with the files of the folder's run. With --only, these are the files that the run was
    prepared from. A continued run replaces a copy of its first file by that file, and refuses any other file."""
    refuse_foreign_folder(run)
    check_line(STYLE, run)
    if check_stage_inputs(STYLE, run, only):
        before = StyleRunConfig.parse(load_yaml(run.config), str(run.config))
        return config.model_copy(update={name: getattr(before, name) for name in ("labelled", "labels", "prepare")})
    return config.model_copy(update=recorded_inputs(run, {"labelled": config.labelled}))


def check_labelled(config: StyleRunConfig) -> None:
    next_step = "Give your labelled answers, or make a sample with `qinglan sample style --out DIR`."
    if fault := path_fault(config.labelled, next_step, folder=True):
        raise ConfigError(fault)


def earlier_answers(run: RunDir, config: RunConfig) -> list[str]:
    """Describe the answers in the run's journal. The plan counts calls that have an answer there, although they are
    not made again. Answers of models that the profile does not name are of no use."""
    by_model = read_answers_by_model(run.journal) if run.journal.is_file() else []
    models = {model.model for model in config.gateway.models().values()}
    unnamed = [row for row in by_model if row.model not in models]
    usable = [row for row in by_model if row.model in models]
    answers, cost = sum(row.answers for row in usable), sum(row.cost for row in usable)
    currency, lines = config.gateway.teacher.price.currency, list[str]()
    if usable and config.pays:
        lines.append(
            f"{run.journal} holds paid answers ({answers:,} for {cost:.2f} {currency}): a call "
            "that has its answer there is counted in the plan and costs nothing again; the budget counts what was "
            "paid."
        )
    elif usable:
        lines.append(
            f"{run.journal} holds {answers:,} answers of the stand-in: a call that has its answer there is "
            "counted in the plan and is not made again."
        )
    answers, cost = sum(row.answers for row in unnamed), sum(row.cost for row in unnamed)
    if unnamed:
        lines.append(
            f"{run.journal} holds {answers:,} answers of models that this profile does not name "
            f"({', '.join(row.model for row in unnamed)}): no call of this plan has its answer there, and the budget "
            f"counts {cost:.2f} {currency} for them. Give --out another folder to begin anew."
        )
    return lines
