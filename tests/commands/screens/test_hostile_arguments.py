"""Every command is called with hostile text as its arguments, then as its options; its screen is read back."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest
import typer.main

from commands.cli import app
from tests.screens.terminal_screen import ATTACKS, faults, on_terminal

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forks")]
FILE_NAME_BYTES = 200


def hostile_names() -> list[str]:
    """The attacks as names of tenants, files, runs and models: no slash leads elsewhere, no dot makes an ending."""
    names = [""]
    for attack in (it.replace("/", "|").replace(".", "_") for it in ATTACKS.values() if len(it) < FILE_NAME_BYTES):
        longer = f"{names[-1]} {attack}".strip(" ")
        if len(longer.encode()) <= FILE_NAME_BYTES:
            names[-1] = longer
        else:
            names.append(attack)
    return names


NAMES = hostile_names()


class Command(NamedTuple):
    words: tuple[str, ...]
    arguments: tuple[str, ...]
    options: tuple[str, ...]
    """Those that take text."""

    required: tuple[str, ...]


def commands(group: Any = None, words: tuple[str, ...] = ()) -> Iterator[Command]:
    """Every command of the command line, those added later too."""
    commands_by_name: dict[str, Any] = (group or cast(Any, typer.main.get_command(app))).commands
    for name, command in commands_by_name.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*words, name))
            continue
        options = [it for it in command.params if it.param_type_name == "option" and not it.is_flag]
        yield Command(
            (*words, name),
            tuple(it.name for it in command.params if it.param_type_name == "argument"),
            tuple(it.opts[0] for it in options),
            tuple(it.opts[0] for it in options if it.required),
        )


COMMANDS = {" ".join(it.words): it for it in commands()}
ATTACKED = {name: NAMES[number % len(NAMES)] for number, name in enumerate(COMMANDS)}


@pytest.mark.parametrize("name", sorted(it for it in COMMANDS if COMMANDS[it].arguments or COMMANDS[it].required))
def test_a_hostile_argument_is_shown_and_not_obeyed(name: str, tmp_path: Path) -> None:
    command = COMMANDS[name]
    options = [f"{option}={ATTACKED[name]}" for option in command.required]
    arguments = [ATTACKED[name] for _ in command.arguments]

    screen = on_terminal(*command.words, *options, "--", *arguments, cwd=tmp_path)

    assert faults(screen) == []
    assert screen.code not in (0, 1), screen.raw


@pytest.mark.parametrize("name", sorted(it for it in COMMANDS if COMMANDS[it].options))
def test_a_hostile_option_is_shown_and_not_obeyed(name: str, tmp_path: Path) -> None:
    command = COMMANDS[name]
    options = [f"{option}={ATTACKED[name]}" for option in command.options]
    arguments = ["fivedoctors" for _ in command.arguments]

    screen = on_terminal(*command.words, *options, "--", *arguments, cwd=tmp_path)

    assert faults(screen) == []
    assert screen.code not in (0, 1), screen.raw
