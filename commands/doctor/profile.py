"""Checks of a profile: all that `qinglan run` needs, the RAG service's limits, memory and disk, and the plan."""

from collections.abc import Iterator, Mapping
from datetime import date
from pathlib import Path

from pipelines.checks.checks import Check, failed
from pipelines.checks.plan import count_tokens, make_plan
from pipelines.checks.preflight import base_warnings
from pipelines.checks.readiness import Readiness, called_models, check_readiness, problem_of, unset_local_keys
from pipelines.checks.sizing.check import check_fit, check_room, cpu_machine, on_gpus
from pipelines.lines.rewriter import REWRITER, RunConfig
from pipelines.lines.sheet import with_folds
from qinglan.errors import QinglanError

READY = {
    "files": "questions and knowledge base are there.",
    "settings": "they can be run here.",
    "weights": "the base and the critic are fit, or are downloaded by the base stage.",
    "hosts": "all may be called.",
    "keys": "all are set.",
    "RAG": "it answers, in a shape that a run reads.",
}
"""Messages for subjects without a problem."""


def profile_checks(config: RunConfig, folder: Path, today: date, cluster: bool) -> Iterator[Check]:
    """Check everything that a run of this profile in the folder needs. With `cluster`, problems of this machine are
    only warnings, because the run is not here."""
    stages = REWRITER.until(REWRITER.last)
    ready = "the run starts its own." if config.stand_ins.rag else READY["RAG"]
    readiness = check_readiness(config, stages)
    roles = ("teacher", "judge", "examiner")
    local = [*unset_local_keys(called_models(config, roles))]
    keys = "those of services beyond this machine are set." if local else READY["keys"]
    yield from readiness_checks(readiness, {**READY, "RAG": ready, "keys": keys}, cluster)
    for variable, users in local:
        yield Check("warning", "keys", f"{variable} is not set: {users} is called without a key.",
                    f"If the service asks for a key: export {variable}=...")  # fmt: skip
    for warning in base_warnings(config, stages):
        yield Check("warning", "weights", warning)
    here = None if cluster or on_gpus(config) else cpu_machine(folder)
    problem = problem_of(lambda: check_fit(config, here, volumes=False))
    if problem:
        yield failed("memory", problem, f"qinglan fit {config.training}")
    else:
        yield Check("ok", "memory", f"{config.training} fits its machines, as far as its models are known.")
    if not readiness.by_subject["files"]:
        yield from plan_checks(config, None if cluster or problem else folder, readiness.rag.snapshot, today)


def plan_checks(config: RunConfig, folder: Path | None, snapshot: bool | None, today: date) -> Iterator[Check]:
    """Report the plan's refusals and warnings, and the obstacles to a promotion. With a folder, also check that this
    machine has the memory and disk."""
    stages = REWRITER.until(REWRITER.last)
    try:
        counted = count_tokens(config)
        plan = make_plan(config, today, snapshot=snapshot, stages=stages, counted=counted)
    except QinglanError as error:
        yield failed("sheet", error, "`qinglan plan` counts its rows and labels.")
        return
    if not plan.promotion.refusals:
        yield Check("ok", "sheet", f"{plan.rows:,} questions, counted as `qinglan plan` counts them.")
    for refusal in plan.promotion.refusals:
        yield Check("error", "sheet", refusal.reason, refusal.next_step)
    for warning in plan.warnings:
        yield Check("warning", "plan", warning)
    for obstacle in plan.promotion.obstacles:
        yield Check("warning", "promotion", obstacle.reason, obstacle.next_step)
    whole = with_folds(config, counted[0])
    if folder and (room := problem_of(lambda: check_room(whole, folder, stages))):
        yield failed("room", room)


def readiness_checks(ready: Readiness, words: Mapping[str, str], cluster: bool) -> Iterator[Check]:
    """Yield an error for each problem, an ok for each subject without one, and a warning for each limit of the RAG
    service. With `cluster`, problems are only warnings."""
    for subject, problems in ready.by_subject.items():
        for problem in problems:
            check = failed(subject, problem)
            yield check._replace(state="warning", what=f"On this machine: {check.what}") if cluster else check
        if not problems:
            yield Check("ok", subject, words[subject])
    for limit in ready.rag.limits:
        yield Check("warning", "RAG", limit)
