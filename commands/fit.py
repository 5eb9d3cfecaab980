"""`qinglan fit`: memory, disk, steps, hours and price of a profile."""

from typing import Annotated, Any

import typer

from commands.options import Json
from pipelines.lines.overrides import PAID_PROFILE, SetOption, parse_overrides
from qinglan.terminal import say, say_json


def fit(
    name: Annotated[
        str, typer.Argument(help="A file of pipelines/configs/training, such as a100x4; a tenant; or style/PROFILE.")
    ],
    profile: Annotated[str | None, typer.Option(help="Of a tenant: as of `qinglan run`, by default gpt.")] = None,
    gpus: Annotated[int | None, typer.Option(min=1, help="Cards of each machine, in place of the profile's.")] = None,
    gpu_memory: Annotated[
        float | None, typer.Option(min=1, max=10_000, help="GB of a card, in place of the profile's.")
    ] = None,
    rows: Annotated[
        int | None, typer.Option(min=1, help="Training rows that steps and hours are counted for.")
    ] = None,
    set_: SetOption = None,
    as_json: Json = False,
) -> None:
    """Show whether a profile fits its machines: memory of cards and hosts, disk, steps, hours and price.

    A profile without GPUs is compared with this machine. Exit code 2 if it does not fit, or if a model's shape is not
    known.
    """
    from pipelines.checks.sizing.check import cpu_machine, on_gpus, uncounted_models
    from pipelines.checks.sizing.profiles import is_shipped, load_profile, profile_workload
    from pipelines.checks.sizing.report import PLANNED, Workload, fit_report
    from pipelines.checks.sizing.table import print_fit, uncounted_in_words
    from pipelines.execute.rundir import RUNS, run_folder
    from pipelines.lines.rewriter import RunConfig
    from qinglan.errors import ConfigError
    from qinglan.sizing.cards import card_of_size

    config = load_profile(name, profile, gpus, parse_overrides(set_ or ()))
    if gpu_memory and not on_gpus(config):
        raise ConfigError(f"--gpu-memory: {name} trains on this machine's processors. Leave the option out.")
    card = card_of_size(gpu_memory) if gpu_memory else None
    load, origin, folder = Workload(rows) if rows else PLANNED, "", RUNS / name.partition("/")[0]
    if isinstance(config, RunConfig) and not is_shipped(name):  # a tenant's
        folder = run_folder(name, profile or PAID_PROFILE)
        if not rows:
            config, load, origin = profile_workload(config)
    report = fit_report(config, name, card, None if on_gpus(config) else cpu_machine(folder), load)
    if report is None:
        models = uncounted_models(config)
        answer: dict[str, Any] = {"profile": name, "fits": None, "unknown": models}
        say_json(answer) if as_json else say(f"{name}: {uncounted_in_words(models)}")
        if models:
            raise typer.Exit(2)
        return
    notes = (*report.notes, *filter(None, [origin]))
    report = report.model_copy(update={"notes": notes})
    say_json(report.model_dump(mode="json")) if as_json else print_fit(report)
    if not report.fits:
        raise typer.Exit(2)
