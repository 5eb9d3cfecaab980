"""Translate the help of the commands, and typer's own texts, into the language of the person at the terminal."""

import sys
from typing import Any, NoReturn

import typer

from qinglan.messages import reads_chinese, translated
from qinglan.terminal import in_language
from qinglan.terminal.line_breaks import break_between_characters

TYPER_TEXTS = (
    "DEFAULT_STRING", "ENVVAR_STRING", "REQUIRED_LONG_STRING", "ARGUMENTS_PANEL_TITLE", "OPTIONS_PANEL_TITLE",
    "COMMANDS_PANEL_TITLE",
)  # fmt: skip


def run_app(app: typer.Typer) -> Any:
    """Run the command line, with its help translated if the person reads Chinese."""
    command = typer.main.get_command(app)
    if reads_chinese():
        _translate_command(command)
        _translate_typer()
        break_between_characters()
    return command(prog_name="qinglan", standalone_mode=False)


def _translate_command(command: Any) -> None:
    """Translate the texts of a command and of all its subcommands, paragraph by paragraph."""
    command.help, command.epilog = _paragraphs(command.help), _paragraphs(command.epilog)
    command.short_help = _paragraphs(command.short_help)
    help_option = command.get_help_option(command.context_class(command))
    for parameter in (*command.params, help_option):
        if help_text := getattr(parameter, "help", None):
            parameter.help = translated(help_text)
            if isinstance(parameter.show_default, str):
                parameter.show_default = translated(parameter.show_default)
    for below in getattr(command, "commands", {}).values():
        _translate_command(below)


def _paragraphs(text: str | None) -> str | None:
    return text and "\n\n".join(translated(" ".join(part.split())) for part in text.split("\n\n"))


def _translate_typer() -> None:
    """Translate the titles of typer's panels, and the usage line, which typer passes to its highlighter."""
    from typer import rich_utils

    # typer has no setting for these texts; it reads them from its module for each help page.
    for name in TYPER_TEXTS:
        setattr(rich_utils, name, translated(getattr(rich_utils, name)))
    highlight: Any = rich_utils.highlighter
    # The highlighter also gets the names of arguments, which are not translated.
    rich_utils.highlighter = lambda text: highlight(translated(text) if is_usage(text) else text)  # type: ignore[assignment]


def is_usage(text: object) -> bool:
    return isinstance(text, str) and text.lstrip().startswith("Usage")


def translate_argparse() -> None:
    """Translate a server's help, and its errors about flags, into the language of this process."""
    import argparse

    from qinglan.terminal import say

    format_help = argparse.ArgumentParser.format_help

    def in_our_language(parser: argparse.ArgumentParser) -> str:
        parser.description = in_language(parser.description or "")
        for group in parser._action_groups:
            group.title = in_language(group.title or "")
            for action in group._group_actions:
                action.help = in_language(action.help or "")
        text = format_help(parser)
        return text.replace("usage:", in_language("usage:"), 1)

    def end_with_hint(parser: argparse.ArgumentParser, message: str) -> NoReturn:
        hint = f"`{parser.prog} --help` shows what it takes."
        say(f"{parser.prog}: {in_language(f'{message}. {hint}')}", to=sys.stderr)
        sys.exit(2)

    # Each server builds its own parser, so that only the class is known here.
    argparse.ArgumentParser.format_help = in_our_language  # type: ignore[assignment, method-assign]
    argparse.ArgumentParser.error = end_with_hint  # type: ignore[assignment, method-assign]
