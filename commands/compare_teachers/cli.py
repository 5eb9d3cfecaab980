"""`qinglan compare-teachers`: measure candidate teacher models on a sample of a tenant's questions."""

import json
import sys
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import Annotated

import typer

from pipelines.lines.overrides import DEFAULT_PROFILE, SetOption, with_overrides
from qinglan.terminal import say_json


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
    """Two or more teachers on the same rows: quality through the RAG, latency, cost, refusals, and which to take."""
    from commands.compare_teachers.config import EXAMPLE, load_teachers
    from commands.compare_teachers.plan import plan_lines, print_plan
    from commands.compare_teachers.report import print_comparison
    from commands.compare_teachers.run import compare
    from commands.compare_teachers.sample import Sample
    from pipelines.lines.config import load_config

    candidates = load_teachers(teachers or EXAMPLE)
    options = with_overrides(set_, questions=questions, knowledge_base=knowledge_base)
    config = load_config(tenant, profile, **options)

    def confirm(sample: Sample) -> None:
        if config.pays and not yes:
            print_plan(config, candidates, plan_lines(config, candidates, sample.rows), len(sample.rows))
            _ask_to_spend()

    root = out or Path("runs") / f"compare-{tenant}"
    with redirect_stdout(sys.stderr) if as_json else nullcontext():
        compare(config, candidates, root, rows, confirm)
    if as_json:
        say_json(json.loads((root / "comparison.json").read_bytes()))
    else:
        print_comparison(json.loads((root / "comparison.json").read_bytes()), root)


def _ask_to_spend() -> None:
    from qinglan.errors import ConfigError

    if not sys.stdin.isatty():
        raise ConfigError("This comparison spends money. Look at the plan above, then add --yes.")
    if not typer.confirm("Spend this?"):
        raise typer.Exit(0)
