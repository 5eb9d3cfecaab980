"""Models that no rewriter can start from are refused, and a critic that is not there or reads other texts."""

import json
from pathlib import Path
from typing import Any

import pytest

from qinglan.errors import ConfigError, DataError
from qinglan.models.base_weights import WEIGHTS_VARIABLE
from qinglan.rewriter.base_check import find_critic, refuse_other_vocabulary, refuse_unfit_base
from tests.models.tiny_rewriter import tiny_model


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return tiny_model(tmp_path / "weights" / "Qwen" / "Qwen3-1.7B")


def test_a_template_in_the_tokenizers_configuration_counts_too(base: Path) -> None:
    """As Qwen3's repositories have it."""
    template = (base / "chat_template.jinja").read_text()
    (base / "chat_template.jinja").unlink()
    with pytest.raises(DataError, match="no chat template"):
        refuse_unfit_base(base)
    change(base / "tokenizer_config.json", chat_template=template)

    refuse_unfit_base(base)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architectures": ["BertForMaskedLM"], "model_type": "bert"}, "a BertForMaskedLM, and a rewriter is a"),
        ({"architectures": ["Qwen3VLForConditionalGeneration"]}, r"Take a text model, such as Qwen/Qwen3-8B"),
        ({"architectures": None}, "a qwen3, and a rewriter"),
        ({"architectures": ["NewForCausalLM"], "model_type": "new"}, "model_type 'new' is unknown to this transfor"),
        ({"quantization_config": {"quant_method": "awq"}}, r"quantised \(awq\).* in bfloat16"),
    ],
)
def test_a_checkpoint_of_another_architecture_is_refused(base: Path, changes: dict[str, Any], message: str) -> None:
    change(base / "config.json", **changes)

    with pytest.raises(DataError, match=message):
        refuse_unfit_base(base)


@pytest.mark.parametrize("lacking", ["hidden_size", "num_attention_heads", "vocab_size"])
def test_a_configuration_without_a_size_names_the_file_and_what_it_lacks(base: Path, lacking: str) -> None:
    config = json.loads((base / "config.json").read_text())
    del config[lacking]
    (base / "config.json").write_text(json.dumps(config))

    with pytest.raises(DataError, match=rf"config\.json: has no '{lacking}'\. Download the model again"):
        refuse_unfit_base(base)


def test_a_critic_is_found_by_its_public_name_or_refused_with_the_next_step(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(WEIGHTS_VARIABLE, raising=False)
    with pytest.raises(ConfigError, match=r"Qwen3-1\.7B: no such folder here.*is not set.*hf download Qwen/Qwen3"):
        find_critic("Qwen/Qwen3-1.7B")

    monkeypatch.setenv(WEIGHTS_VARIABLE, str(base.parents[1]))
    assert find_critic("Qwen/Qwen3-1.7B") == find_critic(str(base)) == base
    with pytest.raises(ConfigError, match="copy it to the volume of cluster"):
        find_critic("Qwen/Qwen3-4B")


def test_a_critic_of_another_vocabulary_is_refused(base: Path, tmp_path: Path) -> None:
    other = tiny_model(tmp_path / "other")
    refuse_other_vocabulary(other, base)
    tokens = json.loads((other / "tokenizer.json").read_text())
    vocabulary = tokens["model"]["vocab"]
    first, second = sorted(vocabulary, key=vocabulary.__getitem__)[300:302]
    vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
    (other / "tokenizer.json").write_text(json.dumps(tokens))

    with pytest.raises(ConfigError, match="another vocabulary"):
        refuse_other_vocabulary(other, base)


def change(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(("content", "special", "refused"), [
    ("SYSTEM:", True, True), ("@@end@@", True, True), ("[INST]", True, False), ("<|new|>", True, False),
    ("名词", False, False),
])  # fmt: skip
def test_a_model_whose_control_tokens_a_user_could_type_is_refused(
    base: Path, content: str, special: bool, refused: bool
) -> None:
    added = json.loads((base / "tokenizer.json").read_text())["added_tokens"]
    change(base / "tokenizer.json", added_tokens=[*added, {"content": content, "special": special}])

    if refused:
        with pytest.raises(DataError, match="so that a user's text could hold it"):
            refuse_unfit_base(base)
    else:
        refuse_unfit_base(base)
