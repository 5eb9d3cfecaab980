"""A tenant that the project has never heard of: two settings, as the README shows them, are enough for the line."""

import re
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from pipelines.config import CONFIGS, TRAINING, merged
from qinglan.config import load_yaml
from qinglan.rewriter_card import read_card
from qinglan.samples import write_sample
from tests.pipelines.test_thread import SHORT, Ran, qinglan

ROOT = Path(__file__).parents[2]


def shown(readme: str) -> Any:
    """The README's two settings, as a person would copy them."""
    found = re.findall(r"   ```yaml\n(   generate:\n.*?)   ```\n", (ROOT / readme).read_text(encoding="utf-8"), re.S)
    assert len(found) == 1
    return yaml.safe_load(found[0])


def acme(folder: Path, settings: Any) -> list[str]:
    """Words of a command: tenant acme, its sheet, knowledge base and profile, with stand-ins for paid models."""
    write_sample("fivedoctors", folder, conversations=30, seed=5)
    demo = load_yaml(CONFIGS / "fivedoctors" / "demo.yaml")
    for role, model in (("teacher", "acme"), ("judge", "acme"), ("examiner", "acme-examiner")):
        demo["gateway"][role] = demo["gateway"][role] | {"model": model}
    laptop = load_yaml(TRAINING / "laptop.yaml")
    profile = merged(merged(merged(laptop, demo), SHORT), settings)
    (folder / "acme.yaml").write_text(yaml.safe_dump(profile), encoding="utf-8")
    words = ["acme", "--profile", str(folder / "acme.yaml"), "--questions", str(folder / "questions.xlsx")]
    return [*words, "--knowledge-base", str(folder / "knowledge_base.jsonl"), "--json"]


def test_both_readmes_show_the_same_two_settings_and_a_plan_takes_them(tmp_path: Path) -> None:
    settings = shown("README.md")
    plan = qinglan(["plan", *acme(tmp_path, settings)], tmp_path)

    assert settings == shown("README.zh.md")
    assert set(settings) == {"generate", "convert"}
    assert all(set(values) == {"system_prompt"} for values in settings.values())
    assert plan.code == 0, plan.errors
    assert plan.record["promotion"]["possible"] is False


def test_a_plan_without_them_says_what_to_set(tmp_path: Path) -> None:
    plan = qinglan(["plan", *acme(tmp_path, {})], tmp_path)

    assert plan.code == 2
    assert "Set generate.system_prompt in the profile" in plan.errors
    assert "set convert.system_prompt in the profile" in plan.errors


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder = tmp_path_factory.mktemp("acme")
    words = ["run", *acme(folder, shown("README.md")), "--out", str(folder / "run")]
    return qinglan(words, folder / "run")


@pytest.mark.slow
def test_the_whole_line_runs_for_a_new_tenant_and_its_models_carry_its_prompt(ran: Ran) -> None:
    assert ran.code == 7, ran.errors
    steps = {name: (step or {}).get("status") for name, step in ran.record["steps"].items()}
    assert [
        steps[name] for name in ("generate", "validate", "convert", "base", "sft", "ppo", "evaluate", "gate")
    ] == ["done"] * 8
    prompt = shown("README.md")["convert"]["system_prompt"]
    for model in ("sft_model", "rl_model"):
        assert read_card(ran.out / "files" / model).system_prompts == {"acme": prompt}
    found = orjson.loads((ran.out / "files" / "evaluation.json").read_bytes())
    assert set(found["paired"]["rl_vs_teacher"]["tenants"]) == {"acme"}


@pytest.mark.slow
def test_that_the_gate_could_only_hold_was_said_at_the_beginning_and_came_true(ran: Ran) -> None:
    early, _, late = ran.errors.partition("The gate says hold: ")

    assert "! Can this be promoted?" in early and "rows with gold passages; evaluate.gate.rows wants 200" in early
    labelled = re.search(r"The locked test has (\d+) rows", early)
    assert labelled and f"Too few: {labelled[1]} queries with gold passages were compared" in late
