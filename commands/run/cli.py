"""`qinglan run`: a whole run on this machine, from the sheet to a signed release."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from commands.options import Json, KnowledgeBase, Out, Profile, Questions, Tenant, Training, Until, confirm_spending
from pipelines.lines.overrides import DEFAULT_PROFILE, SetOption, with_overrides
from qinglan.terminal import say, say_json

if TYPE_CHECKING:
    from pipelines.checks.plan import Plan


def run(
    tenant: Tenant,
    profile: Profile = DEFAULT_PROFILE,
    training: Training = "",
    questions: Questions = None,
    knowledge_base: KnowledgeBase = None,
    out: Out = None,
    only: Annotated[str, typer.Option(help="Run only this stage, on the files of the run's folder.")] = "",
    until: Until = "",
    yes: Annotated[bool, typer.Option("--yes", help="Spend without asking.")] = False,
    set_: SetOption = None,
    as_json: Json = False,
) -> None:
    """Run the thread here, from the sheet to a signed release: the same graph as on the cluster, with kfp.local."""
    from pipelines.execute.rundir import run_folder
    from pipelines.lines.config import load_config

    root = out or run_folder(tenant, profile)
    options = with_overrides(set_, questions=questions, knowledge_base=knowledge_base, training=training or None)
    config = load_config(tenant, profile, **options)
    if not as_json:  # the imports below, the checks and the services take several seconds
        say(f"[run] {tenant} in {root}: reads the files and checks what a run needs.", to=sys.stderr)

    from commands.run.end_screen import print_summary
    from commands.run.run import run_pipeline
    from pipelines.execute.execution import raise_if_held
    from pipelines.execute.rundir import RunDir

    approve = ask_to_spend if config.pays and not yes else None
    record = run_pipeline(config, root, only, until, quiet=as_json, approve=approve)
    say_json(record) if as_json else print_summary(config, RunDir(root), record)
    raise_if_held(record)


def ask_to_spend(plan: "Plan") -> None:
    from commands.plan.table import print_plan

    print_plan(plan)
    if not confirm_spending("This run spends money. Look at the plan above, then add --yes."):
        raise typer.Exit(0)
