"""The command `qinglan evaluate`."""

import sys
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import Annotated

import typer

from pipelines.lines.overrides import SetOption, with_overrides
from qinglan.terminal import say, say_json


def evaluate(
    beir: Annotated[
        Path, typer.Option(help="The benchmark: corpus.jsonl, queries.jsonl, qrels/, and conversations.jsonl if any.")
    ],
    split: Annotated[str, typer.Option(help="Judgements: qrels/SPLIT.tsv.")] = "test",
    run: Annotated[
        list[Path] | None, typer.Option(help="A run's folder: its models sft and rl. Repeat it for other seeds.")
    ] = None,
    model: Annotated[
        list[str] | None, typer.Option(help="NAME=FOLDER of a rewriter or release. Repeat a name for its seeds.")
    ] = None,
    rewriter: Annotated[
        list[str] | None,
        typer.Option(help="NAME=URL of our protocol, or NAME=openai=URL,model=MODEL; ,key=VARIABLE: an API key."),
    ] = None,
    tenant: Annotated[str, typer.Option(help="The tenant in whose prompts every system is asked.")] = "fivedoctors",
    teacher: Annotated[
        str, typer.Option(help="A profile of the tenant, whose teacher is asked and paid.", show_default="none")
    ] = "",
    out: Annotated[
        Path | None, typer.Option(help="runs/beir-<folder> by default. Again: nothing is paid twice.")
    ] = None,
    draws: Annotated[int, typer.Option(min=100, help="Draws of each interval.")] = 10_000,
    seed: Annotated[int, typer.Option(help="Seed of the draws.")] = 0,
    yes: Annotated[bool, typer.Option("--yes", help="Spend without asking.")] = False,
    set_: SetOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print beir.json, and nothing else, on stdout.")] = False,
) -> None:
    """Measure rewriters on a public retrieval benchmark in BEIR's layout, by measures equal to trec_eval's."""
    from commands.beir.dataset import Dataset
    from commands.beir.results import Draws, build_report
    from commands.beir.rewriters import read_model, read_rewriter, run_models
    from commands.beir.run import KNOWLEDGE_BASE, Contenders, evaluate_beir
    from pipelines.lines.config import load_config
    from qinglan.errors import ConfigError
    from qinglan.evaluation.pages.report import to_markdown

    models: dict[str, list[Path]] = {}
    named = [(name, path) for folder in run or () for name, path in run_models(folder).items()]
    for name, path in [*named, *map(read_model, model or ())]:
        models.setdefault(name, []).append(path)
    pairs = [read_rewriter(text) for text in rewriter or ()]
    if len(dict(pairs)) < len(pairs):
        raise ConfigError("--rewriter: two have one name. A server has no seeds; name each differently.")
    root = out or Path("runs") / f"beir-{beir.resolve().name}"
    options = with_overrides(set_, knowledge_base=root / KNOWLEDGE_BASE)
    config = load_config(tenant, teacher, **options) if teacher else None

    def confirm(dataset: Dataset) -> None:
        if config and config.pays and not yes:
            name, budget = config.gateway.teacher.model, config.gateway.budget
            currency = config.gateway.teacher.price.currency
            say(f"{len(dataset.rows):,} queries go to {name}, within {budget:g} {currency}.", to=sys.stderr)
            if not sys.stdin.isatty():
                raise ConfigError("This spends money. Look at the line above, then add --yes.")
            if not typer.confirm("Spend this?"):
                raise typer.Exit(0)

    with redirect_stdout(sys.stderr) if as_json else nullcontext():
        contenders = Contenders(models, dict(pairs), config)
        results = evaluate_beir(beir, split, tenant, contenders, root, Draws(draws, seed), confirm)
    if as_json:
        say_json(results)
    else:
        from qinglan.terminal.console import Console, markdown

        console = Console()
        console.print(markdown(to_markdown(build_report(results), notes=True)))
        console.print(f"{root / 'beir.html'}  {root / 'beir.json'}", highlight=False, soft_wrap=True)
