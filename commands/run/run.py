"""`qinglan run` and `qinglan style run`: start the services that are missing, execute the graph, and write a record.

The run's journal holds every paid answer: a run that stopped is called again and pays nothing twice.
"""

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from pipelines.checks.plan import Plan
from pipelines.checks.planned_run import check_run, check_style_run
from pipelines.checks.preflight import check_served, knowledge_bases
from pipelines.checks.promotion import promotion_lines
from pipelines.checks.readiness import asks_examiner
from pipelines.execute.cross_fit import cross_fit_words, cross_fitted_parts
from pipelines.execute.environments.stage_environments import prepare_environments
from pipelines.execute.execution import check_keys, prepare_run, run_lock, run_stages, select_stages
from pipelines.execute.rundir import RunDir, write_json
from pipelines.execute.small_style import style_parts
from pipelines.lines.rewriter import REWRITER, RunConfig
from pipelines.lines.sheet import Sheet
from pipelines.lines.style import STYLE, StyleRunConfig
from qinglan.errors import QinglanError
from qinglan.llm.config import GatewayConfig
from qinglan.llm.contract import REPORT_PATH
from qinglan.llm.paid.journal_reader import read_report
from qinglan.processes.services import run_service, start_service
from qinglan.rows.splits import split_of
from qinglan.terminal import say
from standins.samples.tenant_content import TENANTS, content_file

ROLES = ("teacher", "judge", "examiner")
ENOUGH_LABELS = 1_000
"""Highest number of labelled rows on which the local reranker is fitted. More did not help: with all 2,431 rows of a
sample, scores separated no better (AUC .87, .85)."""


def run_pipeline(
    config: RunConfig, root: Path, only: str = "", until: str = "", quiet: bool = False,
    approve: Callable[[Plan], None] | None = None, journal: Path | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Execute the rewriter's line up to a stage, or only one stage; returns the content of run.json.

    `approve` is called with the plan after all checks and before anything is paid; it raises an error to refuse the
    run. `journal` is a journal that several runs share, instead of the folder's own.
    """
    run, stages = RunDir(root, journal), select_stages(REWRITER, only, until)
    checked = check_run(config, run, stages, only)
    config, sheet = checked.config, checked.sheet
    checked.raise_problems()
    if approve and REWRITER.gateway & set(stages):
        approve(checked.plan)  # the approval shows the plan with its warnings
    else:
        for warning in checked.plan.warnings:
            say(f"! {warning}", to=sys.stderr)
        if "evaluate" in stages and checked.plan.promotion.obstacles:  # the run may be useful without a promotion
            lines = promotion_lines(checked.plan.promotion)
            say("! Can this be promoted?", *(f"  {line}" for line in lines), to=sys.stderr)
    check_keys()
    pythons = prepare_environments(REWRITER, config, stages)
    assert config.questions is not None and config.knowledge_base is not None
    inputs = {"questions": config.questions, "knowledge_base": config.knowledge_base}
    with run_lock(run):
        config = prepare_run(REWRITER, config, run, stages, alone=bool(only))
        hide_release(run, stages)
        if REWRITER.gateway & set(stages) and not quiet:
            say(f"[run] {sheet.splits.total():,} questions; starts the services for {stages[0]}.", to=sys.stderr)
        gateway = partial(run_gateway, config, run, stages, sheet)
        parts = cross_fitted_parts(config, run, stages, bool(only))
        return run_stages(REWRITER, run, stages, inputs, bool(only), quiet, gateway, pythons, parts)


def run_style(
    config: StyleRunConfig, root: Path, only: str = "", until: str = "", quiet: bool = False
) -> dict[str, Any]:
    """Execute the style line up to a stage, or only one stage; returns the content of run.json."""
    run, stages = RunDir(root), select_stages(STYLE, only, until)
    config = check_style_run(config, run, stages, only)
    check_keys()
    pythons = prepare_environments(STYLE, config, stages)
    inputs = {"labelled": config.labelled.resolve()}
    with run_lock(run):
        config = prepare_run(STYLE, config, run, stages, alone=bool(only))
        if not only:
            run.unlink(["release", "small_release"])  # the new verdicts may hold
        parts = style_parts(run, stages, bool(only))
        return run_stages(STYLE, run, stages, inputs, bool(only), quiet, pythons=pythons, parts=parts)


def hide_release(run: RunDir, stages: Sequence[str]) -> None:
    """Remove the link to an earlier run's release, because this run's gate may hold, or may not be reached."""
    if run.shown("release").is_symlink() and "register" not in stages:
        message = "[release] files/release is gone: it was made of what the run held before. The store keeps it."
        say(message, to=sys.stderr)
    run.unlink(["release"])


@contextmanager
def run_gateway(
    config: RunConfig, run: RunDir, stages: Sequence[str], sheet: Sheet, record: dict[str, Any]
) -> Iterator[str]:
    """Run the gateway and yield its URL, empty if no stage calls it. Reports of its journal go into the record, also
    if the run fails."""
    try:
        with ExitStack() as services:
            gateway_url = start_services(config, run, stages, services)
            if gateway_url:
                check_served(gateway_url, sheet.tenants, config.retrieval.kb_name)
                if "evaluate" in stages and sheet.folds:
                    record["cross_fitted"] = {"folds": len(sheet.folds), "rows": sheet.labelled_test_rows}
                    say(f"! {cross_fit_words(config, sheet)}", to=sys.stderr)
                record["gateway_before"] = _gateway_report(gateway_url)
            yield gateway_url
            record["gateway"] = _gateway_report(gateway_url)
    except BaseException:
        # If the journal cannot be read (nothing was paid yet, or it is broken), the run's own error matters more.
        with suppress(QinglanError):
            record["gateway"] = read_report(run.journal)  # the gateway has ended, and so have its last calls
        raise


def start_services(config: RunConfig, run: RunDir, stages: Collection[str], stack: ExitStack) -> str:
    """Start the services that the stages need; returns the gateway's URL, empty if no stage calls it."""
    if not REWRITER.gateway & set(stages):
        return ""
    gateway = start_backends(config, run, stack)
    if not asks_examiner(config, stages):
        gateway = gateway.model_copy(update={"examiner": None})  # no stage calls it, so its key may be missing
    return start_gateway(gateway, run, stack)


def start_backends(config: RunConfig, run: RunDir, stack: ExitStack, variants: Iterable[str] = ()) -> GatewayConfig:
    """Start the stand-ins that the profile asks for, side by side; returns the gateway's settings with their
    addresses. `variants` are further options of the stand-in teacher."""
    gateway = config.gateway
    # Started first and waited for last: the teacher loads its knowledge bases while the RAG service builds its index.
    teacher = start_teacher(config, run, stack, variants)
    if config.stand_ins.rag:
        arguments = [*knowledge_base_options(config), "--index-root", str(run.index), "--port", "0"]
        for tenant, path in knowledge_bases(config).items():
            if reranker := fit_local_reranker(config, run, tenant, path):
                arguments += ["--reranker", f"{tenant}={reranker}"]
        address = {"base_url": stack.enter_context(run_service("serving.rag", arguments, run.logs / "rag.log"))}
        gateway = gateway.model_copy(update={"rag": gateway.rag.model_copy(update=address)})
    return teacher(gateway)


def start_teacher(
    config: RunConfig, run: RunDir, stack: ExitStack, variants: Iterable[str] = ()
) -> Callable[[GatewayConfig], GatewayConfig]:
    """Start the stand-in teacher if the profile has one. The returned function waits until the stand-in listens, and
    puts its address into the settings of the models."""
    if not config.stand_ins.teacher:
        return lambda gateway: gateway
    seconds = str(config.stand_ins.teacher_seconds)
    arguments = [*knowledge_base_options(config), *variants, "--latency", seconds, "--port", "0"]
    for tenant in set(knowledge_bases(config)) & set(TENANTS):
        arguments += ["--vocabulary", f"{tenant}={content_file(tenant)}"]
    url = stack.enter_context(start_service("standins.teacher", arguments, run.logs / "teacher.log"))

    def with_address(gateway: GatewayConfig) -> GatewayConfig:
        address = {"base_url": url()}
        models = {role: model.model_copy(update=address) for role in ROLES if (model := getattr(gateway, role))}
        return gateway.model_copy(update=models)

    return with_address


def knowledge_base_options(config: RunConfig) -> list[str]:
    return [word for tenant, path in knowledge_bases(config).items() for word in ("--kb", f"{tenant}={path}")]


def start_gateway(gateway: GatewayConfig, run: RunDir, stack: ExitStack) -> str:
    settings = run.root / "gateway.json"
    write_json(settings, gateway.model_dump(mode="json"))
    arguments = ["--config", str(settings), "--journal", str(run.journal)]
    arguments += ["--retrieval-cache", str(run.retrievals), "--port", "0"]
    return stack.enter_context(run_service("serving.gateway", arguments, run.logs / "gateway.log"))


def fit_local_reranker(config: RunConfig, run: RunDir, tenant: str, knowledge_base: Path) -> Path | None:
    """Fit the local reranker on labelled training conversations; None if there are none. A fit is reused for the same
    labels and the same knowledge base."""
    from qinglan.files.files import atomic_write, dump_line
    from qinglan.rows.questions import read_questions
    from qinglan.rows.rows import Question
    from serving.rag.rerank.fit import ENOUGH_CONVERSATIONS, fit_once

    assert config.questions is not None
    labelled = run.index / f"{tenant}-labelled.jsonl"
    count = 0
    with atomic_write(labelled) as partial, partial.open("wb") as file:
        for row in read_questions(config.questions, config.generate.columns, config.tenant_id):
            if not isinstance(row, Question) or not row.gold or row.tenant_id != tenant:
                continue
            split = row.split or split_of((row.tenant_id, row.conversation_id), config.convert)
            if split == "train":
                file.write(dump_line(row.model_copy(update={"split": split})))
                count += 1
            if count == ENOUGH_LABELS:
                break
    if not count:
        return None
    reranker = run.index / f"{tenant}-reranker.json"
    if fit_once(labelled, knowledge_base, run.index, tenant, reranker).report is None:
        say(
            f"! The RAG service's scores for {tenant} are not calibrated: {count:,} labelled training rows are "
            "too few. They order passages and are no probabilities: keep validate.quality_threshold at 0, or label "
            f"gold passages in {ENOUGH_CONVERSATIONS} conversations or more.",
            to=sys.stderr,
        )
    return reranker


def _gateway_report(gateway_url: str) -> dict[str, Any]:
    if not gateway_url:
        return {}
    from qinglan.http.http_client import get_json

    report: dict[str, Any] = get_json(f"{gateway_url}{REPORT_PATH}", "See the gateway's log, then run again.")
    return report
