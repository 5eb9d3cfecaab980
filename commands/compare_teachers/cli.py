"""`qinglan compare-teachers`: measure candidate teacher models on a sample of a tenant's questions."""

from pathlib import Path
from typing import Annotated

import typer

from commands.options import Json, KnowledgeBase, Profile, Questions, Tenant, confirm_spending, only_json
from pipelines.lines.overrides import DEFAULT_PROFILE, SetOption, with_overrides
from qinglan.terminal import say, say_json


def compare_teachers(
    tenant: Tenant,
    teachers: Annotated[
        Path | None, typer.Option(help="YAML of candidates; pipelines/configs/teachers.example.yaml by default.")
    ] = None,
    profile: Profile = DEFAULT_PROFILE,
    questions: Questions = None,
    knowledge_base: KnowledgeBase = None,
    rows: Annotated[int, typer.Option(min=20, help="About so many rows of training, as whole conversations.")] = 200,
    out: Annotated[
        Path | None, typer.Option(help="runs/compare-<tenant> by default. Again: nothing is paid twice.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Spend without asking.")] = False,
    set_: SetOption = None,
    as_json: Json = False,
) -> None:
    """Two or more teachers on the same rows: what their rewrites find, cost, refusals, and which to take."""
    from commands.compare_teachers.config import EXAMPLE, load_teachers
    from commands.compare_teachers.runs import PlannedCalls, compare
    from commands.compare_teachers.table import print_comparison
    from pipelines.lines.config import load_config

    candidates = load_teachers(teachers or EXAMPLE)
    options = with_overrides(set_, questions=questions, knowledge_base=knowledge_base)
    config = load_config(tenant, profile, **options)

    def confirm(planned: PlannedCalls) -> None:
        if not config.pays or yes:
            return
        currency, total = config.gateway.teacher.price.currency, sum(step.cost for step in planned.values())
        for who, step in planned.items():
            say(f"{who}: {step.calls:,} calls of {step.model}, about {step.cost:.2f} {currency}")
        say(
            f"Together about {total:.2f} {currency}. Equal texts are asked once; answers in the journal cost nothing."
        )
        if not confirm_spending("This comparison spends money. Look at the plan above, then add --yes."):
            raise typer.Exit(0)

    root = out or Path("runs") / f"compare-{tenant}"
    with only_json(as_json):
        comparison = compare(config, candidates, root, rows, confirm, quiet=as_json)
    if as_json:
        say_json(comparison)
    else:
        print_comparison(comparison)
        say(root / "comparison.json")
