"""`qinglan plan`: what a run would cost, before anything is paid."""

from commands.options import Json, KnowledgeBase, Out, Profile, Questions, Tenant, Training, Until
from pipelines.lines.overrides import DEFAULT_PROFILE, SetOption, with_overrides
from qinglan.terminal import say_json


def plan(
    tenant: Tenant,
    profile: Profile = DEFAULT_PROFILE,
    training: Training = "",
    questions: Questions = None,
    knowledge_base: KnowledgeBase = None,
    out: Out = None,
    until: Until = "",
    set_: SetOption = None,
    as_json: Json = False,
) -> None:
    """Count the calls, cost and time of a run before anything is spent, and name what it waits for.

    If `qinglan run` with the same arguments would be refused, the last lines say so, with its exit code.
    """
    from commands.plan.table import print_plan
    from pipelines.checks.planned_run import check_run
    from pipelines.checks.readiness import problem_of
    from pipelines.execute.execution import select_stages
    from pipelines.execute.rundir import RunDir, run_folder
    from pipelines.lines.config import load_config
    from pipelines.lines.rewriter import REWRITER

    options = with_overrides(set_, questions=questions, knowledge_base=knowledge_base, training=training or None)
    config = load_config(tenant, profile, **options)
    run = RunDir(out or run_folder(tenant, profile))
    checked = check_run(config, run, select_stages(REWRITER, "", until))
    say_json(checked.plan.model_dump(mode="json")) if as_json else print_plan(checked.plan)
    if problem := problem_of(checked.raise_problems):
        raise type(problem)("`qinglan run` with the same arguments would be refused:", *problem.lines) from problem
