"""`qinglan prepay`: pay for a run's calls through batch APIs."""

import sys
from typing import Annotated

import typer

from commands.options import Json, KnowledgeBase, Out, Profile, Questions, Tenant, Training, confirm_spending
from pipelines.lines.overrides import DEFAULT_PROFILE, SetOption, with_overrides
from qinglan.terminal import say, say_json


def prepay(
    tenant: Tenant,
    profile: Profile = DEFAULT_PROFILE,
    training: Training = "",
    questions: Questions = None,
    knowledge_base: KnowledgeBase = None,
    out: Out = None,
    batch_rows: Annotated[int, typer.Option(min=1, max=50_000, help="Most rows of one batch.")] = 50_000,
    give_up: Annotated[
        bool, typer.Option("--give-up", help="Leave open batches for good; their rows may have been billed.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Spend without asking.")] = False,
    set_: SetOption = None,
    as_json: Json = False,
) -> None:
    """Pay ahead for what a run will ask, through the providers' batch APIs: about half the price, within a day."""
    from commands.prepay import prepay as prepayment
    from pipelines.execute.rundir import run_folder
    from pipelines.lines.config import load_config

    options = with_overrides(set_, questions=questions, knowledge_base=knowledge_base, training=training or None)
    config = load_config(tenant, profile, **options)
    root = out or run_folder(tenant, profile)
    if give_up:
        names = [batch.batch or batch.name for batch in prepayment.give_up(root)]
        say_json({"given_up": names}) if as_json else say(f"{len(names)} batches given up.", *names)
        return

    def approve(quote: prepayment.Quote) -> bool:
        say(*prepayment.quote_in_words(quote), to=sys.stderr)
        return yes or not config.pays or confirm_spending("This spends money. Look at the price, then add --yes.")

    result = prepayment.prepay_run(config, root, approve, batch_rows)
    if result is None:
        raise typer.Exit(0)
    if as_json:
        say_json({**result._asdict(), "unpaid": [row._asdict() for row in result.unpaid]})
    else:
        say(*prepayment.result_in_words(result, root / "journal.sqlite"))
    prepayment.raise_problems(result)
