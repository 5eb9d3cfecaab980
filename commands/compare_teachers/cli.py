"""`qinglan compare-teachers`: measure candidate teacher models on a sample of a tenant's questions."""

import sys
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import Annotated

import typer

from pipelines.lines.overrides import DEFAULT_PROFILE, SetOption, with_overrides
from qinglan.terminal import in_language, say, say_json


def compare_teachers(
    tenant: Annotated[str, typer.Argument(help="A tenant: fivedoctors, chengla, or yours.")],
    teachers: Annotated[
        Path | None, typer.Option(help="YAML of candidates; pipelines/configs/teachers.example.yaml by default.")
    ] = None,
    profile: Annotated[
        str, typer.Option(help="Of tenants/<tenant> or pipelines/configs/<tenant>, or a path that ends in .yaml.")
    ] = DEFAULT_PROFILE,
    questions: Annotated[
        Path | None, typer.Option(help="The spreadsheet (.xlsx), CSV or JSONL of questions.")
    ] = None,
    knowledge_base: Annotated[
        Path | None, typer.Option(help="The knowledge base, JSONL; or a folder of <tenant>.jsonl.")
    ] = None,
    rows: Annotated[int, typer.Option(min=20, help="About so many rows of training, as whole conversations.")] = 200,
    out: Annotated[
        Path | None, typer.Option(help="runs/compare-<tenant> by default. Again: nothing is paid twice.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Spend without asking.")] = False,
    set_: SetOption = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print comparison.json, and nothing else, on stdout.")
    ] = False,
) -> None:
    """Two or more teachers on the same rows: what their rewrites find, cost, refusals, and which to take."""
    from commands.compare_teachers.config import EXAMPLE, load_teachers
    from commands.compare_teachers.report import print_comparison
    from commands.compare_teachers.runs import PlannedCalls, compare
    from pipelines.lines.config import load_config
    from qinglan.errors import ConfigError

    candidates = load_teachers(teachers or EXAMPLE)
    options = with_overrides(set_, questions=questions, knowledge_base=knowledge_base)
    config = load_config(tenant, profile, **options)

    def confirm(planned: list[PlannedCalls]) -> None:
        if not config.pays or yes:
            return
        currency, total = config.gateway.teacher.price.currency, sum(calls.cost for calls in planned)
        for who, model, calls, cost in planned:
            say(f"{who}: {calls:,} calls of {model}, about {cost:.2f} {currency}")
        say(
            f"Together about {total:.2f} {currency}. Equal texts are asked once; answers in the journal cost nothing."
        )
        if not sys.stdin.isatty():
            raise ConfigError("This comparison spends money. Look at the plan above, then add --yes.")
        if not typer.confirm(in_language("Spend this?")):
            raise typer.Exit(0)

    root = out or Path("runs") / f"compare-{tenant}"
    with redirect_stdout(sys.stderr) if as_json else nullcontext():
        comparison = compare(config, candidates, root, rows, confirm, quiet=as_json)
    say_json(comparison) if as_json else print_comparison(comparison, root)
