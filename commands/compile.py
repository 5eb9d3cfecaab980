"""`qinglan compile`: the graphs for Kubeflow as YAML."""

from pathlib import Path
from typing import Annotated

import typer

from commands.options import Training
from pipelines.lines.overrides import SetOption, parse_overrides
from qinglan.terminal import say


def compile_(
    out: Annotated[Path, typer.Option(help="The folder to write to.")] = Path("pipelines/compiled"),
    tenant: Annotated[str, typer.Option(help="Only this tenant's graph; `style` for the style model's.")] = "",
    profile: Annotated[
        str,
        typer.Option(help="Of the tenant: its settings are part of the graph.", show_default="gpt; of style: a100"),
    ] = "",
    training: Training = "",
    image: Annotated[
        list[str] | None, typer.Option(help="NAME=REFERENCE@sha256:DIGEST, each image of a release.")
    ] = None,
    set_: SetOption = None,
) -> None:
    """Write pipelines as YAML for Kubeflow, with a profile's settings and machines; the same bytes every time."""
    from pipelines.graph.compiler import compile_targets, read_images, select_targets

    targets = select_targets(tenant, profile, training, parse_overrides(set_ or ()))
    for path in compile_targets(targets, out, read_images(image or ())):
        say(path)
