"""The command `qinglan check-rag`."""

import asyncio
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from commands.options import Json
from pipelines.lines.overrides import SetOption
from qinglan.terminal import say, say_json

WITHOUT_SHEET = (
    "No sheet was read, so one question of ours stands for yours. --tenant with --profile takes the tenant's own "
    "sheet and knowledge base; --questions FILE another."
)
KEY_AS_OPTION = (
    "For this check give it as an option: --header 'Authorization: Bearer $NAME', where NAME is an environment "
    "variable."
)


def check_rag(
    url: Annotated[str, typer.Argument(help="Address of the service; without it the profile's.")] = "",
    tenant: Annotated[str, typer.Option(help="The tenant that is asked about.")] = "",
    profile: Annotated[
        str, typer.Option(help="A profile of the tenant, whose gateway.rag and retrieval are checked.")
    ] = "",
    questions: Annotated[
        Path | None, typer.Option(help="The spreadsheet (.xlsx) or JSONL of questions, with gold passages if any.")
    ] = None,
    question: Annotated[
        list[str] | None, typer.Option(help="A question in place of the sheet's; repeatable.")
    ] = None,
    knowledge_base: Annotated[
        Path | None, typer.Option(help="The knowledge base, JSONL: are its ids those of the service?")
    ] = None,
    rows: Annotated[int, typer.Option(min=1, max=1000, help="Questions of the sheet that are asked.")] = 20,
    path: Annotated[str, typer.Option(help="Path of the endpoint.", show_default="/api/chat/general_rag")] = "",
    header: Annotated[
        list[str] | None, typer.Option(help="'NAME: VALUE'; $VARIABLE is read from the environment. Repeatable.")
    ] = None,
    set_: SetOption = None,
    as_json: Json = False,
) -> None:
    """Ask a RAG service a few questions and say what fits a run, what does not, and the lines for the profile.

    Nothing is paid. Exit code 3 if an answer keeps a run from working.
    """
    from commands.check_rag.inputs import read_inputs
    from pipelines.checks.checks import print_checks, worst_state
    from pipelines.checks.rag.ask import measure
    from pipelines.checks.rag.judge import closing_lines, judge, profile_lines
    from qinglan.rag.client import UnauthorizedError

    inputs = read_inputs(url, tenant, profile, questions, knowledge_base, path, header or (), set_ or ())
    sample = list(islice(inputs.with_questions(question or ()), rows))
    try:
        measured = asyncio.run(measure(inputs.service, inputs.retrieval, sample))
    except UnauthorizedError as error:
        raise UnauthorizedError(*error.lines, KEY_AS_OPTION) from error
    verdict = judge(measured, inputs.retrieval.score_threshold, inputs.passages())
    lines = {"stand_ins": {"rag": False}} if inputs.starts_project_service else {}
    lines |= profile_lines(verdict.settings)
    if as_json:
        checks: list[dict[str, Any]] = [check._asdict() for check in verdict.checks]
        say_json({"checks": checks, "limits": verdict.meaning, "settings": lines})
    else:
        count = f"{len(sample):,} question{'' if len(sample) == 1 else 's'}"
        say(f"{inputs.service.base_url}{inputs.service.path}, {count} of {sample[0].tenant_id}:")
        print_checks(verdict.checks)
        if not (question or inputs.questions):
            say(f"! {WITHOUT_SHEET}")
        say("", "With this service:", *(f"- {line}" for line in closing_lines(verdict.checks, verdict.meaning)))
        say("", "For the profile (on a cluster the part below `gateway:` for gateway.yaml):", "", *yaml_lines(lines))
    if worst_state(verdict.checks) == "error":
        raise typer.Exit(3)


def yaml_lines(settings: dict[str, Any]) -> list[str]:
    import yaml

    return yaml.safe_dump(settings, allow_unicode=True, sort_keys=False, width=110).splitlines()
