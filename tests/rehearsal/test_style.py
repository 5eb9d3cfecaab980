"""The style line's rehearsal changes what it prints, on a model that is Qwen2.5 in all but width and weights."""

import json
from pathlib import Path

import pytest

from qinglan.rewriter.model import load_tokenizer
from tests.rehearsal.differences import _leaves, setting_differences
from tests.rehearsal.narrow_qwen2 import CONFIG, GENERATION, NARROW, write_narrow_qwen2
from tests.rehearsal.style import (
    DEVICE,
    GATE,
    SHOWN,
    SIZES,
    STYLE_PROFILES,
    StyleRehearsal,
    runtime_container,
    server_command,
    unset_differences,
)


@pytest.mark.parametrize("name", STYLE_PROFILES)
def test_only_the_listed_settings_differ(name: str, tmp_path: Path) -> None:
    rehearsal = StyleRehearsal(name, tmp_path)

    names = {
        difference.name for difference in setting_differences(rehearsal.profile_config(), rehearsal.here(), SHOWN)
    }

    assert names <= {name for settings in (SIZES, DEVICE, GATE) for name, _ in _leaves(settings)}
    assert ("style.device" in names) is (name != "style-cpu")
    assert any("hidden_size 896 -> 112" in line for line in unset_differences(rehearsal))


def test_the_small_model_is_served_by_its_runtimes_own_command(tmp_path: Path) -> None:
    command = server_command(runtime_container(), "/python", tmp_path)

    assert command[:3] == ["/python", "-m", "serving.style"]
    assert set(command[3:]) == {
        f"--model={tmp_path}/model", "--engine=onnx", "--name=style-small", "--host=127.0.0.1", "--port=0",
    }  # fmt: skip


@pytest.mark.slow
def test_the_narrow_model_has_the_published_files(tmp_path: Path) -> None:
    from safetensors import safe_open

    folder = write_narrow_qwen2(tmp_path / "model", ["这个产品有什么优缺点？", "有很多优点。"])

    config, tokenizer = json.loads((folder / "config.json").read_bytes()), load_tokenizer(folder)
    assert {name for name in config if config[name] != CONFIG.get(name)} == set(NARROW)
    assert json.loads((folder / "generation_config.json").read_bytes()) == GENERATION
    special = {"<|endoftext|>": 151643, "<|im_end|>": 151645, "<|file_sep|>": 151664, "<think>": None}
    assert {token: tokenizer.get_vocab().get(token) for token in special} == special
    assert (len(tokenizer), tokenizer.pad_token_id) == (151_665, 151_643)
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": "好"}], tokenize=False, add_generation_prompt=True
    )
    assert prompt.startswith("<|im_start|>system\nYou are Qwen, created by Alibaba Cloud.")
    assert prompt.endswith("<|im_start|>user\n好<|im_end|>\n<|im_start|>assistant\n")
    with safe_open(folder / "model.safetensors", "pt") as file:
        assert "lm_head.weight" not in file.keys()  # noqa: SIM118
        assert str(file.get_tensor("model.embed_tokens.weight").dtype) == "torch.bfloat16"
