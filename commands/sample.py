"""`qinglan sample`: write a seeded sample of a tenant's data."""

from pathlib import Path
from typing import Annotated, Any

import typer

from commands.options import Json
from qinglan.terminal import say, say_json


def sample(
    tenant: Annotated[str, typer.Argument(help="fivedoctors or chengla; or style, for labelled answers of both.")],
    out: Annotated[Path, typer.Option(help="The folder to write to.")],
    conversations: Annotated[int, typer.Option(min=8, help="1,600 give 1,000+ dev and test questions.")] = 1600,
    rows: Annotated[int, typer.Option(min=26, help="Number of labelled answers, only for style.")] = 4000,
    seed: Annotated[int, typer.Option(help="The same seed gives the same bytes.")] = 0,
    variant: Annotated[
        str, typer.Option(help="A harder world of a tenant's: standins/samples/README.md lists them.")
    ] = "plain",
    as_json: Json = False,
) -> None:
    """Write a seeded sample: a tenant's knowledge base and spreadsheet of questions, or labelled answers."""
    from standins.samples import write_sample
    from standins.samples.style import write_style_sample
    from standins.samples.unchanged_files import without_overwriting

    with without_overwriting(out) as folder:
        if tenant == "style":
            counts: Any = write_style_sample(folder, rows, seed)
        else:
            counts = write_sample(tenant, folder, conversations, seed, variant)
    say_json(counts._asdict()) if as_json else say(f"{out}: {counts.in_words()}")
