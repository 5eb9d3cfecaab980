"""Checks of a profile: what `qinglan run` waits for, the RAG service's limits, memory, and the age of prices."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import date

from pipelines.checks import Check
from pipelines.plan import stale_price_warning
from pipelines.preflight import base_warnings, check_sheet
from pipelines.readiness import Readiness, check_readiness, problem_of
from pipelines.rewriter import REWRITER, RunConfig
from pipelines.sheet import read_sheet, with_folds
from pipelines.sizing.check import check_fit
from qinglan.errors import QinglanError
from qinglan.llm.config import PaidModel, Role

READY = {
    "files": "questions and knowledge base are there.",
    "settings": "they can be run here.",
    "weights": "the base and the critic are fit, or are downloaded by the base stage.",
    "hosts": "all may be called.",
    "keys": "all are set.",
    "RAG": "it answers, in a shape that a run reads.",
}
"""Words for a subject without a problem."""


def profile_checks(config: RunConfig, today: date, cluster: bool) -> Iterator[Check]:
    """Everything that a run of this profile waits for; for a cluster, faults of this machine are warnings."""
    stages = REWRITER.until(REWRITER.last)
    ready = "the run starts its own." if config.stand_ins.rag else READY["RAG"]
    readiness = check_readiness(config, stages)
    yield from readiness_checks(readiness, {**READY, "RAG": ready}, cluster)
    if not readiness.by_subject["files"]:
        yield from sheet_checks(config, stages)
    for warning in base_warnings(config, stages):
        yield Check("warning", "weights", warning)
    problem = problem_of(lambda: check_fit(config, volumes=False))
    if problem:
        yield Check("error", "memory", " ".join(problem.lines), f"qinglan fit {config.training}")
    else:
        yield Check("ok", "memory", f"{config.training} fits its machines, as far as its models are known.")
    yield from price_checks(config.gateway.models() if config.pays else {}, today)


def sheet_checks(config: RunConfig, stages: Sequence[str]) -> Iterator[Check]:
    """The rows and labels, by the code that refuses a run."""
    try:
        sheet = read_sheet(config)
        check_sheet(with_folds(config, sheet), sheet, stages)
    except QinglanError as error:
        yield Check("error", "sheet", " ".join(error.lines), "`qinglan plan` counts its rows and labels.")
        return
    yield Check("ok", "sheet", f"{sheet.splits.total():,} questions, with rows and labels as a whole run needs.")


def readiness_checks(ready: Readiness, words: Mapping[str, str], cluster: bool) -> Iterator[Check]:
    """Each problem with its subject, and a word for every subject without one."""
    for subject, problems in ready.by_subject.items():
        for problem in problems:
            text = " ".join(problem.lines)
            yield Check("warning", subject, f"On this machine: {text}") if cluster else Check("error", subject, text)
        if not problems:
            yield Check("ok", subject, words[subject])
    for limit in ready.rag.limits:
        yield Check("warning", "RAG", limit)


def price_checks(models: Mapping[Role, PaidModel], today: date) -> Iterator[Check]:
    """Prices that were read too long ago; one line where none is."""
    stale: Sequence[str] = [
        line
        for model in {model.model: model for model in models.values()}.values()
        for line in stale_price_warning(model.model, model.price, today)
    ]
    for line in stale:
        yield Check("warning", "prices", line, "Put today's into the profile, and today's date as as_of.")
    if models and not stale:
        yield Check("ok", "prices", "all were read within the last quarter of a year.")
