"""The README is a front door: short, in two languages, and every link of it leads somewhere."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from commands.cli import app
from pipelines.lines.config import CONFIGS, TRAINING
from pipelines.lines.rewriter import RunConfig
from qinglan.config import load_yaml, merge_settings

ROOT = Path(__file__).parents[2]
READMES = ("README.md", "README.zh.md")
MOST_LINES, MOST_BYTES = 140, 9_000

PAGES = (
    "demo", "guide", "commands", "plan", "performance", "architecture", "audit", "submit", "pipelines", "teachers",
    "beir",
)  # fmt: skip
PAIRS = ("README", "CONTRIBUTING", *(f"docs/{page}" for page in PAGES))
"""Documents in English and Chinese: X.md and X.zh.md."""

ROOMS = (
    "docs",
    "qinglan",
    "components",
    "serving",
    "standins",
    "pipelines",
    "commands",
    "manifests",
    "images",
    "examples",
    "tests",
)
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(path for room in ROOMS for path in (ROOT / room).rglob("*.md"))])
LINK = re.compile(r"(?:\]\(|src=\")([^)\"\s]+)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
SETTINGS = re.compile(r"`(\w+: \{.*?\})`")


@pytest.mark.parametrize("name", READMES)
def test_a_readme_is_short(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")

    assert len(text.splitlines()) <= MOST_LINES
    assert len(text.encode()) <= MOST_BYTES


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_relative_link_leads_to_a_file_and_a_heading(document: Path) -> None:
    assert [link for link in LINK.findall(document.read_text(encoding="utf-8")) if not leads(document, link)] == []


@pytest.mark.parametrize("name", PAIRS)
def test_both_languages_say_as_much(name: str) -> None:
    """The same headings, table rows and blocks, and the same files, whatever the words."""
    english, chinese = ((ROOT / f"{name}{end}").read_text(encoding="utf-8") for end in (".md", ".zh.md"))
    if name == "docs/performance":  # its finer tables are in English alone
        english = english.partition("\n## ")[0]
        chinese = chinese.partition("\n## ")[0]

    assert shape(english) == shape(chinese)


def test_the_page_on_architecture_names_every_contract() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")

    assert [contract["name"] for contract in settings["contracts"] if f"“{contract['name']}”" not in page] == []


@pytest.mark.parametrize("name", ["docs/commands.md", "docs/commands.zh.md"])
def test_every_command_is_on_the_page_of_commands(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]

    assert [command for command in commands if not re.search(rf"\b{command}\b", text)] == []


@pytest.mark.parametrize("name", READMES)
def test_the_settings_that_it_shows_are_accepted(name: str) -> None:
    shown = [yaml.safe_load(text) for text in SETTINGS.findall((ROOT / name).read_text(encoding="utf-8"))]

    assert [next(iter(settings)) for settings in shown] == ["ppo", "deploy", "sft", "evaluate", "cluster"]
    for settings_item in shown:
        RunConfig.parse(profile_with(settings_item), name)


def leads(document: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    if path.startswith(("http:", "https:")):
        return True
    target = (document.parent / path).resolve() if path else document
    return target.exists() and (not anchor or anchor in anchors(target))


def anchors(document: Path) -> set[str]:
    """As GitHub makes them: lower case, spaces to hyphens, punctuation away."""
    headings = HEADING.findall(document.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def shape(text: str) -> tuple[int, int, int]:
    return len(HEADING.findall(text)), len(re.findall(r"^\|", text, re.MULTILINE)), text.count("\n```")


def profile_with(settings: dict[str, Any]) -> dict[str, Any]:
    demo = load_yaml(CONFIGS / "fivedoctors" / "demo.yaml")
    values = {"tenant_id": "fivedoctors", **merge_settings(load_yaml(TRAINING / "laptop.yaml"), demo)}
    deploy = {"deploy": {"namespace": "qinglan", "store": "s3://models"}} if "deploy" in settings else {}
    return merge_settings(merge_settings(values, deploy), settings)
