"""`--set a.b=VALUE` on every command that takes a profile: one value over the profile's, checked like the file."""

from inspect import signature
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from commands.cli import app
from pipelines.lines.config import load_config, load_style_config
from pipelines.lines.overrides import DEFAULT_PROFILE, parse_overrides, with_overrides
from qinglan.errors import ConfigError


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        (["gateway.budget=20"], {"gateway": {"budget": 20}}),
        (["gateway.rag.path=/v2", "gateway.budget=1.5"], {"gateway": {"rag": {"path": "/v2"}, "budget": 1.5}}),
        (["trackers=[wandb]", "deploy=null"], {"trackers": ["wandb"], "deploy": None}),
        (["gateway.rag.request.need="], {"gateway": {"rag": {"request": {"need": None}}}}),
        (['gateway.rag.request.need=""'], {"gateway": {"rag": {"request": {"need": ""}}}}),
    ],
)
def test_a_value_is_yaml_at_its_path(options: list[str], settings: dict[str, Any]) -> None:
    assert parse_overrides(options) == settings


@pytest.mark.parametrize("option", ["gateway.budget", "=3", "gateway..budget=3", "a.b=[1"])
def test_an_option_that_is_none_is_refused(option: str) -> None:
    with pytest.raises(ConfigError, match=r"--set"):
        parse_overrides([option])


def test_a_files_option_wins_over_set_and_a_typo_is_named() -> None:
    options = with_overrides(["questions=a.xlsx", "gateway.budget=7"], questions=Path("b.xlsx"), training=None)
    config = load_config("fivedoctors", "gpt", **options)

    assert (config.questions, config.gateway.budget) == (Path("b.xlsx"), 7)
    blamed = r"^--set: gateway\.bugdet: there is no such setting .*Did you mean `budget`\?$"
    with pytest.raises(ConfigError, match=blamed):
        load_config("fivedoctors", "gpt", **parse_overrides(["gateway.bugdet=7"]))


@pytest.mark.parametrize(
    ("option", "hint"),
    [
        ("base.steps=2", "`base.tiny.steps`?"),
        ("zzz=1", "There are: trackers, tenant_id, "),
        ("base.tiny.zzz=2", "There are: base.tiny."),
        ("sft.epoch=2", "`epochs`?"),
        ("score_threshold=0", "`retrieval.score_threshold`?"),
    ],
)
def test_a_setting_that_is_not_there_is_told_with_its_place_or_with_all_there(option: str, hint: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config("fivedoctors", "gpt", **parse_overrides([option]))

    assert hint in str(refused.value)


@pytest.mark.parametrize(
    ("settings", "blamed"),
    [(["stlye.epochs=1"], "^--set: stlye: there is no such setting"), ([], "mine.yaml: nope: there is no")],
)
def test_a_style_runs_typo_is_blamed_on_where_it_was_written(
    settings: list[str], blamed: str, tmp_path: Path
) -> None:
    profile = tmp_path / "mine.yaml"
    profile.write_text("base: {source: tiny}\n" + ("" if settings else "nope: 1\n"))

    for options in (settings, [*settings, "style.epochs=2"]):
        with pytest.raises(ConfigError, match=blamed):
            load_style_config(str(profile), **with_overrides(options, labelled=Path("x.json")))


@pytest.mark.parametrize("command", [
    ["plan", "fivedoctors"], ["run", "fivedoctors"], ["prepay", "fivedoctors"], ["compare-teachers", "fivedoctors"],
    ["doctor", "fivedoctors"], ["fit", "fivedoctors"], ["style", "run", "x.jsonl"],
    ["compile", "--tenant", "fivedoctors"], ["check-rag", "--profile", "gpt", "--tenant", "fivedoctors"],
])  # fmt: skip
def test_every_command_with_a_profile_takes_settings_and_checks_them(command: list[str], tmp_path: Path) -> None:
    result = CliRunner().invoke(app, [*command, "--set", "nonsense.here=1"])

    assert "nonsense" in f"{result.exception} {result.output}"


def test_every_command_on_a_tenant_takes_the_same_profile_by_default() -> None:
    """doctor would otherwise check another profile than the one that run then uses."""
    named = {
        command.name or command.callback.__name__: signature(command.callback)
        for command in app.registered_commands
        if command.callback
    }
    taken = {
        name: command.parameters["profile"].default
        for name, command in named.items()
        if {"tenant", "profile"} <= set(command.parameters)
    }

    assert {taken[name] for name in ("doctor", "plan", "run", "prepay", "compare-teachers")} == {DEFAULT_PROFILE}
