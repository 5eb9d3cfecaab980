"""The plan of a run in its folder: counted once, with all that the run would wait for or be refused for."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pipelines.execution import check_existing_keys
from pipelines.plan import Plan, count_tokens, make_plan
from pipelines.preflight import (
    base_warnings,
    input_file_problems,
    raise_missing,
    raise_refusals,
    refused_by_run,
    with_run_files,
)
from pipelines.readiness import check_readiness
from pipelines.rewriter import RunConfig
from pipelines.rundir import RunDir
from pipelines.sheet import with_folds
from pipelines.sizing.check import check_room
from qinglan.errors import QinglanError
from qinglan.llm.journal_reader import read_report


class PlanWithRefusal(NamedTuple):
    plan: Plan
    refusal: QinglanError | None
    """The error that `qinglan run` would end with, before anything is paid."""


def plan_run(config: RunConfig, folder: Path, stages: Sequence[str]) -> PlanWithRefusal:
    """Plan a run of these stages in a folder, which is left as it is."""
    ready = check_readiness(config, stages)
    if any(input_file_problems(config, knowledge_base=False)):
        raise_missing(ready.missing)
    sheet, tokens = count_tokens(config)
    config = with_folds(config, sheet)
    plan = make_plan(
        config, missing=ready.missing, snapshot=ready.rag.snapshot, stages=stages, counted=(sheet, tokens),
        warnings=(
            *base_warnings(config, stages), *ready.rag.limits,
            *(paid_before(RunDir(folder), config.gateway.teacher.price.currency) if config.pays else ()),
        ),
    )  # fmt: skip
    try:
        with_run_files(config, RunDir(folder), "")
        raise_missing(ready.missing)
        check_room(config, folder, stages)
        raise_refusals(plan.promotion.refusals)
        check_existing_keys()
    except QinglanError as error:
        return PlanWithRefusal(plan, refused_by_run(error))
    return PlanWithRefusal(plan, None)


def paid_before(run: RunDir, currency: str) -> list[str]:
    """Tell of answers that the run's journal holds: the plan counts all calls, and these are not paid again."""
    report = read_report(run.journal) if run.journal.is_file() else {"answered": 0}
    if not report["answered"]:
        return []
    return [
        f"{run.journal} holds paid answers ({report['answered']:,} for {report['cost']:.2f} {currency}): a call that "
        "has its answer there is counted here and costs nothing again; the budget counts what was paid."
    ]
