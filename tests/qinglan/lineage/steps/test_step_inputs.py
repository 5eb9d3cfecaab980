"""A step's statement names what was used, and nothing else."""

from pathlib import Path

from qinglan.files.files import sha256_bytes
from qinglan.lineage.steps.record import StepReport, recorded
from qinglan.lineage.steps.step_inputs import add_critic, add_prompts
from qinglan.prompts import SystemPrompt
from qinglan.rewriter.card import RewriterCard, write_card
from tests.releases.kfp_artifacts import File


def prompts_named(tmp_path: Path, system_prompt: SystemPrompt) -> dict[str, str]:
    (tmp_path / "in").write_text("问题")
    inputs, lineage = {"questions": File(str(tmp_path / "in"))}, File(str(tmp_path / "lineage"))
    with recorded("generate", inputs, {}, {}, lineage) as step:
        add_prompts(step, "teacher.*", system_prompt)
        return {used.name: used.digest for used in step.used if used.name.startswith("prompt")}


def test_a_profiles_own_prompt_is_named_alone(tmp_path: Path) -> None:
    assert prompts_named(tmp_path, "你是户外用品店的助手。") == {
        "prompt teacher": sha256_bytes("你是户外用品店的助手。".encode())
    }


def test_without_one_the_tenants_files_are_named(tmp_path: Path) -> None:
    assert set(prompts_named(tmp_path, "")) == {"prompt teacher.chengla", "prompt teacher.fivedoctors"}


def test_prompts_of_some_tenants_take_the_place_of_their_files(tmp_path: Path) -> None:
    named = prompts_named(tmp_path, {"acme": "你是户外用品店的助手。", "chengla": "你是助教。"})

    assert set(named) == {"prompt teacher.acme", "prompt teacher.chengla", "prompt teacher.fivedoctors"}
    assert named["prompt teacher.chengla"] == sha256_bytes("你是助教。".encode())


def test_the_critics_model_is_named_where_there_was_one(tmp_path: Path) -> None:
    named = []
    for parents in ({"sft_model": "a1"}, {"sft_model": "a1", "critic_model": "b2"}):
        write_card(tmp_path, RewriterCard(stage="ppo", parents=parents))
        step = StepReport({}, [], [], {})
        add_critic(step, tmp_path)
        named.append([(used.name, used.digest, used.is_external) for used in step.used])

    assert named == [[], [("critic_model", "b2", True)]]
