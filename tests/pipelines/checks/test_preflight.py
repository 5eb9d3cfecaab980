"""Refused before anything is paid: a machine without the GPUs, a sheet or a knowledge base that cannot do."""

import json
import re
import shutil
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import cast

import pytest
import yaml

from components.data.convert.split_rows import SplitInput, conversation_splits
from pipelines.checks.preflight import base_warnings, check_sheet, input_file_problems, model_problems, raise_together
from pipelines.execute.execution import check_machine, check_tracking
from pipelines.lines.config import CONFIGS, load_config
from pipelines.lines.rewriter import REWRITER, RunConfig
from pipelines.lines.sheet import read_sheet
from qinglan.config import load_yaml
from qinglan.errors import ConfigError, DataError
from qinglan.models.base_weights import WEIGHTS_VARIABLE
from qinglan.rows.rows import Split
from qinglan.tables.tables import write_table
from tests.models.tiny_rewriter import tiny_model


@pytest.mark.parametrize(("stages", "stage"), [(("convert", "sft"), "sft"), (("ppo",), "ppo")])
def test_gpus_that_are_not_here_are_missed_before_the_teacher_is_asked(
    stages: tuple[str, ...], stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    config = load_config("fivedoctors", "gpt")

    with pytest.raises(ConfigError, match=f"settings of {stage} need 4 GPUs, .*--until convert"):
        check_machine(REWRITER, config, stages)
    check_machine(REWRITER, config, ("generate", "validate", "convert"))
    check_machine(REWRITER, load_config("fivedoctors", "demo"), stages)


TRAINED = ("base", "sft", "ppo")


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunConfig:
    """A run of Qwen/Qwen3-32B, of which a tiny model is in the folder of weights, with a critic that is not."""
    monkeypatch.setenv(WEIGHTS_VARIABLE, str(tmp_path))
    tiny_model(tmp_path / "Qwen" / "Qwen3-32B")
    return load_config("fivedoctors", "gpt", ppo={"critic_model": "Qwen/Qwen3-1.7B"})


def test_the_base_stage_knows_the_critic_of_ppo() -> None:
    for training in ("a100x4", "laptop"):
        config = load_config("fivedoctors", "gpt", training=training)

        assert (config.base.critic or "") == config.ppo.critic_model
    assert load_config("fivedoctors", "gpt").stages()["base"]["critic"] == "Qwen/Qwen3-1.7B"


def problems(config: RunConfig, stages: tuple[str, ...] = TRAINED) -> list[str]:
    return [f"{type(problem).__name__}: {problem}" for problem in model_problems(config, stages)]


def test_public_models_are_looked_through_before_the_teacher_is_asked(tmp_path: Path, models: RunConfig) -> None:
    base = tmp_path / "Qwen" / "Qwen3-32B"

    [absent] = problems(models)
    assert absent.startswith("ConfigError: ppo.critic_model Qwen/Qwen3-1.7B: no such folder here")
    tiny_model(tmp_path / "Qwen" / "Qwen3-1.7B")
    assert problems(models) == []
    (base / "chat_template.jinja").write_text("{{ messages[-1].content }}")
    [unknown] = problems(models)
    assert re.search(r"ConfigError: .*its chat template renders 'u'.* sft\.template", unknown)
    (base / "chat_template.jinja").unlink()
    [without] = problems(models)
    assert re.search("DataError: .*no chat template", without)
    assert problems(models, ("generate", "validate", "convert")) == []
    assert problems(load_config("fivedoctors", "demo")) == []


def test_a_base_that_is_not_here_is_a_warning_with_the_command_to_put_it_here(
    tmp_path: Path, models: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert base_warnings(models, TRAINED) == []
    shutil.rmtree(tmp_path / "Qwen")

    [warning] = base_warnings(models, TRAINED)
    assert f"`hf download Qwen/Qwen3-32B --local-dir {tmp_path}/Qwen/Qwen3-32B`" in warning
    assert base_warnings(models, ("generate", "validate", "convert")) == []
    assert base_warnings(load_config("fivedoctors", "demo"), TRAINED) == []
    monkeypatch.delenv(WEIGHTS_VARIABLE)
    [warning] = base_warnings(models, TRAINED)
    assert "--local-dir FOLDER/Qwen/Qwen3-32B` and set QINGLAN_BASE_WEIGHTS=FOLDER" in warning


def test_a_tracker_without_its_key_is_refused_before_a_line_with_a_training(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WANDB_API_KEY", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)
    config = load_config("fivedoctors", "demo", trackers=["tensorboard", "wandb"])

    check_tracking(REWRITER, config, REWRITER.until("convert"))
    with pytest.raises(ConfigError, match="WANDB_API_KEY is not set"):
        check_tracking(REWRITER, config, REWRITER.until("sft"))
    monkeypatch.setenv("WANDB_MODE", "offline")
    check_tracking(REWRITER, config, REWRITER.until("sft"))


def test_deepspeed_on_a_cpu_without_its_package_is_refused_before_a_line_with_that_training() -> None:
    assert find_spec("deepspeed") is None, "the CPU environment has none"
    config = load_config("fivedoctors", "demo", sft={"deepspeed": "zero3"})

    check_machine(REWRITER, config, REWRITER.until("convert"))
    with pytest.raises(ConfigError, match=r"sft\.deepspeed: zero3 on a CPU needs DeepSpeed"):
        check_machine(REWRITER, config, REWRITER.until("sft"))


@pytest.mark.parametrize(("split", "refused"), [("test", True), ("train", False), (None, False)])
def test_a_sheet_without_a_row_for_training_is_refused(tmp_path: Path, split: str | None, refused: bool) -> None:
    sheet = tmp_path / "questions.xlsx"
    with write_table(sheet, ["问题", "划分"]) as add:
        add(["一天吃几次?", split])
        add(["要放冰箱吗?", "dev"])
    config = load_config("fivedoctors", "demo", questions=sheet)

    if refused:
        with pytest.raises(DataError, match="no row is for training"):
            read_sheet(config)
    else:
        assert read_sheet(config).tenants == {"fivedoctors"}


def labelled(folder: Path, gold: list[str]) -> Path:
    sheet = folder / "questions.xlsx"
    with write_table(sheet, ["编号", "问题", "标准段落", "划分"]) as add:
        for number, ids in enumerate(gold):
            add([f"q{number}", f"一天吃几次{number}?", ids, ("train", "dev")[number] if number < 2 else "test"])
    return sheet


def passages(folder: Path, count: int) -> Path:
    path = folder / "kb.jsonl"
    path.write_text("".join(json.dumps({"id": f"k{n}", "content": f"第{n}段"}) + "\n" for n in range(count)))
    return path


def test_rows_whose_gold_passages_are_all_unknown_are_refused_by_name(tmp_path: Path) -> None:
    sheet = labelled(tmp_path, ["k1", "k1;k9", "k8,k9", "", *["k7"] * 6])
    config = load_config("fivedoctors", "demo", questions=sheet, knowledge_base=passages(tmp_path, 3))

    with pytest.raises(DataError, match=r"7 rows name gold .*'q2' \('k8', 'k9'\), 'q4' \('k7'\).*and 2 more"):
        check_sheet(config, read_sheet(config), ())


def test_a_sheet_too_small_for_one_step_of_ppo_is_refused_where_ppo_is_to_run(tmp_path: Path) -> None:
    sheet = labelled(tmp_path, ["k1"] * 8)
    config = load_config("fivedoctors", "demo", questions=sheet, knowledge_base=passages(tmp_path, 3))

    with pytest.raises(DataError, match=r"rows for training, and a step of PPO takes 128 prompts.*--until sft"):
        check_sheet(config, read_sheet(config), ("sft", "ppo"))
    check_sheet(config, read_sheet(config), ("convert", "sft"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('[{"id": "k1", "content": "段"}]', "one JSON list"),
        ('{\n  "id": "k1",\n  "content": "段"\n}\n', "JSON over several lines"),
        ("id,title,content\nk1,题,段\n", "CSV or other text"),
        ("PK\x03\x04 a workbook", "spreadsheet"),
        ('{"编号": "k1", "正文": "段"}\n', "id: Field required; content: Field required"),
        ("", "holds no passage"),
        ('{"id": "k1", "content": "段"}\n\n{"id": "k2"}\n', r"kb\.jsonl:3: content: Field required"),
        ('{"id": "k1", "content": "段"}\n{"id": "k1", "content": "段"}\n', r"kb\.jsonl:2: id 'k1' is used in line 1"),
    ],
)
def test_another_format_of_a_knowledge_base_is_named_and_a_line_is_shown(
    tmp_path: Path, content: str, message: str
) -> None:
    path = tmp_path / "kb.jsonl"
    path.write_text(content, encoding="utf-8")
    config = load_config("fivedoctors", "demo", questions=labelled(tmp_path, ["k1"]), knowledge_base=path)

    with pytest.raises(DataError, match=message) as refused:
        raise_together([*input_file_problems(config)])
    assert '{"id": "k1", "title": "...", "content": "..."' in str(refused.value)


def test_a_folder_of_documents_in_place_of_passages_is_told_what_makes_them(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("七天内可以退货。", encoding="utf-8")
    sheet = labelled(tmp_path, ["k1"])

    with pytest.raises(ConfigError, match=r"holds no <tenant>\.jsonl.*`qinglan init TENANT SHEET --knowledge-base /"):
        config = load_config("fivedoctors", "demo", questions=sheet, knowledge_base=tmp_path / "docs")
        raise_together([*input_file_problems(config)])


def test_a_tenant_without_prompts_is_told_both_settings(tmp_path: Path) -> None:
    profile = tmp_path / "acme.yaml"
    demo = load_yaml(CONFIGS / "fivedoctors" / "demo.yaml")
    profile.write_text(yaml.safe_dump(demo))
    sheet = labelled(tmp_path, ["", ""])

    with pytest.raises(ConfigError) as refused:
        read_sheet(load_config("acme", str(profile), questions=sheet))
    for word in ("generate.system_prompt", "convert.system_prompt", "a .txt file beside it", "qinglan init"):
        assert word in str(refused.value)

    profile.write_text(yaml.safe_dump(demo | {"generate": {"system_prompt": "改写"}}))
    with pytest.raises(ConfigError, match=r"Set convert\.system_prompt in the profile"):
        read_sheet(load_config("acme", str(profile), questions=sheet))


def test_the_sheet_is_divided_as_convert_divides_it(tmp_path: Path) -> None:
    rows = [("a", ""), ("a", "test"), ("b", "dev"), *((f"c{number}", "") for number in range(300))]
    sheet = tmp_path / "questions.jsonl"
    lines = [
        {"id": str(at), "question": f"问{at}", "conversation_id": name, "split": split, "gold": ["k1"]}
        for at, (name, split) in enumerate(rows)
    ]
    sheet.write_text("\n".join(json.dumps(line) for line in lines))
    config = load_config("fivedoctors", "demo", questions=sheet)
    surveyed = [
        SplitInput(at, name, ("fivedoctors", name), cast(Split, split) or None, "")
        for at, (name, split) in enumerate(rows)
    ]
    splits = conversation_splits(surveyed, config.convert)

    result = read_sheet(config)

    assert result.splits == Counter(splits["fivedoctors", name] for name, _ in rows)
    assert result.test["fivedoctors"].rows == result.splits["test"] == result.test["fivedoctors"].conversations + 1
