"""Arguments and options that several commands share."""

import sys
from contextlib import AbstractContextManager, nullcontext, redirect_stdout
from pathlib import Path
from typing import Annotated, Any

import typer

from qinglan.terminal import in_language

Tenant = Annotated[str, typer.Argument(help="A tenant: fivedoctors, chengla, or yours: a folder of tenants/.")]
Profile = Annotated[
    str, typer.Option(help="Of tenants/<tenant> or pipelines/configs/<tenant>, or a path that ends in .yaml.")
]
Training = Annotated[str, typer.Option(help="Of pipelines/configs/training, in place of the profile's own.")]
Questions = Annotated[Path | None, typer.Option(help="The spreadsheet (.xlsx), CSV or JSONL of questions.")]
KnowledgeBase = Annotated[Path | None, typer.Option(help="The knowledge base, JSONL; or a folder of <tenant>.jsonl.")]
Out = Annotated[
    Path | None, typer.Option(help="The run's folder, runs/<tenant>-<profile> by default. Again: goes on.")
]
Until = Annotated[str, typer.Option(help="Stop after this stage, such as convert or sft.", show_default="the last")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON, and nothing else, on stdout.")]


def only_json(as_json: bool) -> AbstractContextManager[Any]:
    """Send what is printed inside to stderr if stdout holds JSON for a program."""
    return redirect_stdout(sys.stderr) if as_json else nullcontext()


def confirm_spending(without_terminal: str) -> bool:
    from qinglan.errors import ConfigError

    if not sys.stdin.isatty():
        raise ConfigError(without_terminal)
    return typer.confirm(in_language("Spend this?"))
