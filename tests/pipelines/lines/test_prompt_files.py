"""Prompts by path: a tenant needs no file among the project's own."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipelines.checks.plan import make_plan
from pipelines.graph.compiler import target_of
from pipelines.lines.config import CONFIGS, load_config
from qinglan.config import load_yaml
from qinglan.errors import ConfigError

PROMPTS = {
    "generate": {"system_prompt": "teacher.txt"},
    "convert": {"system_prompt": "student.txt"},
    "validate": {"need_prompt": "need.txt"},
    "ppo": {"reward": {"judge_prompt": "judge.txt"}},
    "evaluate": {"judge_prompt": "judge.txt"},
}


@pytest.fixture
def acme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tenant's folder with all four prompts and a sheet, seen from where commands are called."""
    folder = tmp_path / "tenants" / "acme"
    folder.mkdir(parents=True)
    for name in ("teacher", "student", "need", "judge"):
        (folder / f"{name}.txt").write_text(f"\ufeff你是{name}\n\n第二行\n", encoding="utf-8")
    write_jsonl(folder / "questions.jsonl", [{"question": f"那它{at}天吃几次"} for at in range(300)])
    write_profile(folder, PROMPTS)
    monkeypatch.chdir(tmp_path)
    return folder


def write_jsonl(path: Path, rows: list[dict[str, str]]) -> None:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")


def write_profile(folder: Path, settings: dict[str, Any]) -> None:
    profile = load_yaml(CONFIGS / "fivedoctors" / "demo.yaml") | {"questions": "questions.jsonl"} | settings
    (folder / "demo.yaml").write_text(yaml.safe_dump(profile), encoding="utf-8")


def test_every_prompt_of_a_profile_may_be_a_file_beside_it(acme: Path) -> None:
    config = load_config("acme", "demo")

    assert config.generate.system_prompt == "你是teacher\n\n第二行"
    assert config.convert.system_prompt == "你是student\n\n第二行"
    assert config.validate_.need_prompt == "你是need\n\n第二行"
    assert config.ppo.reward.judge_prompt == config.evaluate.judge_prompt == "你是judge\n\n第二行"
    assert config.questions == Path("tenants/acme/questions.jsonl")


@pytest.mark.parametrize("command", [load_config, lambda tenant, profile: target_of(tenant, profile, "")])
def test_all_missing_prompts_are_named_at_once_before_anything_is_paid(acme: Path, command: Any) -> None:
    (acme / "teacher.txt").unlink()
    (acme / "student.txt").write_text(" \n")
    (acme / "need.txt").write_bytes("需求".encode("gb18030"))

    with pytest.raises(ConfigError) as refused:
        command("acme", "demo")
    for words in ("teacher.txt, and there is none", "student.txt, and it is empty", "need.txt, and it is not UTF-8"):
        assert words in str(refused.value)


def test_a_graph_for_the_cluster_holds_the_texts(acme: Path) -> None:
    settings = target_of("acme", "demo", "").config.stages()

    assert settings["generate"]["system_prompt"] == "你是teacher\n\n第二行"
    assert settings["ppo"]["reward"]["judge_prompt"] == "你是judge\n\n第二行"


def test_tenants_of_one_sheet_have_prompts_of_their_own(acme: Path) -> None:
    each = {"acme": "teacher.txt", "umbrella": "你卖伞"}
    write_profile(acme, {"generate": {"system_prompt": each}, "convert": {"system_prompt": {"acme": "student.txt"}}})
    write_jsonl(acme / "questions.jsonl", [{"question": "几次", "tenant_id": name} for name in ("acme", "umbrella")])

    assert load_config("acme", "demo").generate.system_prompt == {
        "acme": "你是teacher\n\n第二行",
        "umbrella": "你卖伞",
    }
    with pytest.raises(ConfigError, match=r"Tenant 'umbrella' lacks a prompt. Set convert.system_prompt"):
        make_plan(load_config("acme", "demo"))
