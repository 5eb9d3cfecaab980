"""Arguments and options that several commands share."""

import os
import sys
from contextlib import AbstractContextManager, nullcontext, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from qinglan.terminal import in_language

if TYPE_CHECKING:
    from qinglan.lineage.signing.trust import TrustPolicy

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


Store = Annotated[
    str, typer.Option(help="A folder or s3://bucket/prefix; QINGLAN_STORE, or runs/store.", show_default=False)
]
Trust = Annotated[Path | None, typer.Option(help="The trust policy; trust.yaml beside the keys by default.")]


def store_address(store: str) -> str:
    from qinglan.store import STORE_VARIABLE

    return store or os.environ.get(STORE_VARIABLE) or "runs/store"


def trust_policy(path: Path | None = None) -> "TrustPolicy":
    """Load the trust policy from this file; without a path, from trust.yaml in the folder of the signing keys."""
    from qinglan.lineage.signing.keys import keys_folder
    from qinglan.lineage.signing.trust import TRUST_FILE, load_trust

    return load_trust(path or keys_folder() / TRUST_FILE)


def only_json(as_json: bool) -> AbstractContextManager[Any]:
    """Redirect all printing inside this context to stderr if `as_json`, so that stdout holds only the JSON."""
    return redirect_stdout(sys.stderr) if as_json else nullcontext()


def confirm_spending(without_terminal: str) -> bool:
    from qinglan.errors import ConfigError

    if not sys.stdin.isatty():
        raise ConfigError(without_terminal)
    return typer.confirm(in_language("Spend this?"))
