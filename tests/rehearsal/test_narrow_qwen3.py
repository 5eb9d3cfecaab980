"""The narrow model is Qwen3-32B in all but width, depth and weights."""

import json
from pathlib import Path

import pytest

from components.training.sft.model_family import match_template, read_model_type
from qinglan.prompts import Message
from qinglan.rewriter.model import load_tokenizer, render_prompt
from tests.models.qwen3 import CONFIG
from tests.models.training_rows import chat
from tests.rehearsal.narrow_qwen3 import GENERATION, NARROW, write_critic, write_narrow_qwen3

pytestmark = pytest.mark.slow

CHATS: list[list[Message]] = [chat(number)["messages"] for number in range(24)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_narrow_qwen3(tmp_path_factory.mktemp("weights") / "Qwen" / "Qwen3-32B", CHATS, steps=2)


def test_its_config_is_the_published_one_but_for_its_sizes(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())

    assert {name for name in config if config[name] != CONFIG.get(name)} <= set(NARROW)
    assert config["vocab_size"] == 151_936 and config["tie_word_embeddings"] is False
    assert json.loads((folder / "generation_config.json").read_text()) == GENERATION


def test_its_tokens_have_the_ids_of_qwens(folder: Path) -> None:
    tokenizer = load_tokenizer(folder)

    special = {"<|endoftext|>": 151643, "<|im_start|>": 151644, "<|im_end|>": 151645, "<think>": 151667}
    assert {token: tokenizer.convert_tokens_to_ids(token) for token in special} == special
    assert (len(tokenizer), tokenizer.eos_token_id, tokenizer.pad_token_id) == (151_669, 151_645, 151_643)
    text = "虾青素 is 12 mg，\n一天吃几次？"
    assert tokenizer.decode(tokenizer(text).input_ids) == text


def test_its_template_switches_thinking_off_as_ms_swift_knows_it(folder: Path) -> None:
    prompt = CHATS[0][:2]

    rendered = render_prompt(load_tokenizer(folder), prompt)

    assert rendered.endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")
    assert (read_model_type(folder), match_template(folder, rendered, prompt)) == ("qwen3", "qwen3")


def test_its_weights_are_bfloat16_and_a_critic_of_another_width_shares_its_vocabulary(
    folder: Path, tmp_path: Path
) -> None:
    from safetensors import safe_open

    write_critic(tmp_path / "critic", folder)

    for path, hidden in ((folder, 64), (tmp_path / "critic", 32)):
        with safe_open(path / "model.safetensors", "pt") as file:
            rows = file.get_tensor("model.embed_tokens.weight")
            assert (tuple(rows.shape), str(rows.dtype)) == ((151_936, hidden), "torch.bfloat16")
            assert ("lm_head.weight" in file.keys()) is (hidden == 64)  # noqa: SIM118
