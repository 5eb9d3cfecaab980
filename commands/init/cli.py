"""`qinglan init`: make a folder in tenants/ from a company's own sheet and documents."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from qinglan.errors import ConfigError
from qinglan.terminal import in_language, say, say_json

if TYPE_CHECKING:
    from commands.init.profiles import Answers, Language
    from commands.init.setup import TenantData
    from pipelines.checks.plan import Plan

PROJECT_SERVICE = "ours"
SHOWN_FILES = 10
"""Highest number of readable documents that are listed by name; unreadable ones are always listed."""


class Question(NamedTuple):
    """A question to the person; it is skipped if an option answers it."""

    text: str
    default: str
    choices: tuple[str, ...] = ()


def init(
    tenant: Annotated[str, typer.Argument(help="A name for your data, such as acme.")],
    sheet: Annotated[Path, typer.Argument(help="Your users' questions: .xlsx, CSV, JSON, JSONL or exported chats.")],
    knowledge_base: Annotated[
        list[Path] | None,
        typer.Option(help="File or folder of .docx, .pdf, .html, .md, .txt, sheets, JSON; may be repeated."),
    ] = None,
    domain: Annotated[str, typer.Option(help="Your trade in a few words: part of the prompts.")] = "",
    teacher: Annotated[str, typer.Option(help="The paid run's teacher: gpt or deepseek.")] = "",
    rag: Annotated[str, typer.Option(help="Address of your own RAG service, or `ours`.")] = "",
    training: Annotated[str, typer.Option(help="The paid run's machine, of pipelines/configs/training.")] = "",
    language: Annotated[str, typer.Option(help="Of the prompts and the README: zh or en.")] = "",
    question_column: Annotated[str, typer.Option(help="The column of questions, if the guess is wrong.")] = "",
    history_column: Annotated[str, typer.Option(help="The column of the history, if the guess is wrong.")] = "",
    conversation_column: Annotated[
        str, typer.Option(help="The column of conversations' ids, if the guess is wrong.")
    ] = "",
    profile_column: Annotated[
        str, typer.Option(help="The column that describes the user, if the guess is wrong.")
    ] = "",
    sheet_name: Annotated[
        str, typer.Option("--sheet", help="The sheet of a workbook, by its name; else the first that can be seen.")
    ] = "",
    yes: Annotated[bool, typer.Option("--yes", help="Ask nothing: take the defaults.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as JSON, and nothing else, on stdout.")
    ] = False,
) -> None:
    """Make a tenant of your own sheet and documents: profiles, prompts and a knowledge base in tenants/TENANT."""
    from commands.init.setup import preview, read_data, tenant_folder, write_tenant
    from pipelines.checks.plan import make_plan
    from pipelines.lines.config import load_config

    to = sys.stderr if as_json else sys.stdout
    tenant_folder(tenant)
    options = {"domain": domain, "teacher": teacher, "rag": rag, "training": training, "language": language}
    check_options(options)
    named = {
        "question": question_column, "history_summary": history_column, "conversation_id": conversation_column,
        "user_profile": profile_column,
    }  # fmt: skip
    data = read_data(tenant, sheet, knowledge_base or (), named, sheet_name)
    say(
        *lines_of_data(data),
        "The first rows as a run will read them:",
        *(f"  {line}" for line in preview(data)),
        to=to,
    )
    answers = ask(data, options, yes)
    folder, answers, changes = write_tenant(tenant, data, answers, chosen=bool(training))
    names = sorted(path.name for path in folder.iterdir())
    trial, plan = (make_plan(load_config(tenant, profile)) for profile in ("demo", answers.teacher))
    say(
        f"Written: {folder} ({', '.join(names)})",
        *(f"! {change}" for change in changes),
        *lines_of_plan(tenant, answers, plan, bool(data.documents)),
        *next_command(tenant, folder, trial, bool(data.documents)),
        to=to,
    )
    if as_json:
        say_json(
            {
                "folder": str(folder), "files": names, "rows": plan.rows, "unfit": plan.unfit, "cost": plan.cost,
                "columns": data.guess.columns, "notes": list(data.guess.notes),
                "passages": len(data.documents.passages) if data.documents else 0,
                "promotion": plan.promotion.model_dump(mode="json"),
            }
        )  # fmt: skip


def lines_of_data(data: "TenantData") -> list[str]:
    """Describe the data that was read, and each guess, in lines."""
    columns = ", ".join(f"{field} = {column}" for field, column in data.guess.columns.items() if column)
    lines = [f"{data.sheet}: {len(data.questions):,} questions of {len(data.rows):,} rows; {columns}"]
    lines += [f"! {note}" for note in data.guess.notes]
    files = data.documents.files if data.documents else []
    unread, whole = [file for file in files if file.note], [file for file in files if not file.note]
    lines += [f"! {file.line}" for file in unread]
    lines += [f"! {file.path}: {remark}" for file in files for remark in file.remarks]
    lines += [f"! {note}" for note in (data.documents.notes if data.documents else ())]
    lines += [f"  {file.line}" for file in whole[:SHOWN_FILES]]
    if more := whole[SHOWN_FILES:]:
        lines.append(f"  and {len(more):,} more files: {sum(file.passages for file in more):,} passages")
    return lines


def ask(data: "TenantData", options: Mapping[str, str], yes: bool) -> "Answers":
    """Collect the five answers from options, from a person, or from the defaults."""
    from commands.init.profiles import Answers
    from commands.init.setup import guess_language

    if not yes and not sys.stdin.isatty() and not all(options.values()):
        raise ConfigError("There is no terminal to ask on. Add --yes to take the defaults, or answer by options.")

    def answer(name: str, question: Question) -> str:
        if options[name] or yes:
            return check_answer(name, (options[name] or question.default).strip(), question)
        return _answer(name, question)

    language = language_question(guess_language(data))
    answers: dict[str, Any] = {"language": answer("language", language)}
    for name, question in questions_for(answers["language"]).items():
        answers[name] = answer(name, question)
    return Answers(**answers)


def check_options(options: Mapping[str, str]) -> None:
    """Refuse an option with an invalid answer before any file is read."""
    questions = {"language": language_question("zh"), **questions_for("zh")}
    for name, option in options.items():
        if option:
            check_answer(name, option.strip(), questions[name])


def language_question(default: "Language") -> Question:
    return Question("Language of prompts and README (zh, en)", default, ("zh", "en"))


def _answer(name: str, question: Question) -> str:

    def valid(text: str) -> str:
        try:
            return check_answer(name, text.strip(), question)
        except ConfigError as error:
            raise typer.BadParameter(in_language(error)) from error

    return str(typer.prompt(in_language(question.text), default=question.default, value_proc=valid))


def questions_for(language: "Language") -> dict[str, Question]:
    """Return all questions except the one about the language, with their defaults. The default domain is written in
    `language`."""
    import shutil

    from commands.init.profiles import training_names

    domain = "本公司产品和服务" if language == "zh" else "our products and services"
    machines = tuple(training_names())
    return {
        "domain": Question(f"Your trade, in a few words of the prompts' language ({language})", domain),
        "teacher": Question("Who teaches the paid run (gpt, deepseek)", "gpt", ("gpt", "deepseek")),
        "rag": Question("Address of your own RAG service, or ours", PROJECT_SERVICE),
        "training": Question(
            f"Machine of the paid run ({', '.join(machines)})",
            "one-gpu-24" if shutil.which("nvidia-smi") else "cpu", machines,
        ),
    }  # fmt: skip


def check_answer(name: str, answer: str, question: Question) -> str:
    if name == "rag":
        if answer == PROJECT_SERVICE:
            return ""
        if not answer.startswith(("http://", "https://")):
            raise ConfigError(
                f"--rag {answer!r}: give an address that begins with http:// or https://, or `{PROJECT_SERVICE}`."
            )
    if question.choices and answer not in question.choices:
        raise ConfigError(f"--{name} {answer!r} is none of {', '.join(question.choices)}.")
    return answer


def lines_of_plan(tenant: str, answers: "Answers", plan: "Plan", documents: bool) -> list[str]:
    """Say what the paid run costs, and whether its model can be promoted."""
    from pipelines.checks.promotion import promotion_lines

    prepaid = [f"With `qinglan prepay` before it: about {plan.prepaid_cost:.2f} {plan.currency}."]
    return [
        f"A run taught by {answers.teacher}: about {plan.cost:.2f} {plan.currency}; it stops before it passes "
        f"{plan.budget:g}. `qinglan plan {tenant} --profile {answers.teacher}` shows all of it.",
        *(prepaid if plan.prepaid_cost < plan.cost else []),
        "Can its model be promoted?", *(f"  {line}" for line in promotion_lines(plan.promotion)),
        *(f"! {warning}" for warning in plan.warnings),
        *([] if documents else ["! Without a knowledge base there is no run: the next command names it."]),
    ]  # fmt: skip


def next_command(tenant: str, folder: Path, trial: "Plan", documents: bool) -> list[str]:
    """Name the command of the trial run, or the reasons why that command would be refused."""
    if refusals := trial.promotion.refusals:
        return [
            f"! `qinglan run {tenant}` would be refused:",
            *(f"  - {refusal.reason} {refusal.next_step}" for refusal in refusals),
            f"Next: mend that, remove {folder}, and call `qinglan init` again.",
        ]
    if not documents:
        return [f"Next, for free, with stand-ins and a tiny model: `qinglan run {tenant} --knowledge-base FILE`"]
    return [f"Next, for free, with stand-ins and a tiny model: `qinglan run {tenant}`"]
