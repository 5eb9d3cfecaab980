"""The command `qinglan doctor`."""

import os
from pathlib import Path
from typing import Annotated

import typer

from commands.options import Json
from pipelines.lines.overrides import DEFAULT_PROFILE, SetOption
from qinglan.terminal import say_json


def doctor(
    tenant: Annotated[str, typer.Argument(help="Checks a profile of this tenant too.")] = "",
    profile: Annotated[
        str, typer.Option(help="Of the tenant: a name, or a path that ends in .yaml.")
    ] = DEFAULT_PROFILE,
    questions: Annotated[Path | None, typer.Option(help="The spreadsheet or JSONL of questions.")] = None,
    knowledge_base: Annotated[Path | None, typer.Option(help="The knowledge base.")] = None,
    paid: Annotated[
        bool, typer.Option("--paid", help="Also ask each model once, which costs less than a cent at list prices.")
    ] = False,
    cluster: Annotated[
        bool, typer.Option("--cluster", help="Also look at the cluster that KUBECONFIG names; done if that is set.")
    ] = False,
    namespace: Annotated[str, typer.Option(help="Of the runs on the cluster, whose Secrets are looked for.")] = "",
    set_: SetOption = None,
    as_json: Json = False,
) -> None:
    """Check this machine, and a profile's keys, hosts, models, RAG service and cluster; say what mends each fault.

    Exit code 2 if something is wrong, 0 with warnings. Without --paid nothing is paid: hosts are asked for their
    lists of models, and the RAG service one question.
    """
    from commands.doctor.examine import examine
    from pipelines.checks.checks import print_checks, worst_state

    checks = examine(
        tenant, profile, questions, knowledge_base, set_ or (), paid,
        cluster or bool(os.environ.get("KUBECONFIG")), namespace,
    )  # fmt: skip
    if as_json:
        say_json({"state": worst_state(checks), "checks": [check._asdict() for check in checks]})
    else:
        print_checks(checks)
    if worst_state(checks) == "error":
        raise typer.Exit(2)
