"""A model is loaded only if its files hold every tensor of its configuration, in its shape, and nothing else."""

import json
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from qinglan.errors import DataError
from qinglan.models import whole_model
from qinglan.models.whole_model import load_whole
from qinglan.rewriter.model import Student
from qinglan.style.model import StyleModel
from tests.models.tiny_rewriter import tiny_model
from tests.models.tiny_style import tiny_style_model

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
SIZES = {
    "vocab_size": 64, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 8, "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2,
}  # fmt: skip
WRITERS: list[Any] = [
    ("Llama", {}), ("Llama", {"tie_word_embeddings": True}), ("Mistral", {}), ("GPT2", {}),
    ("Qwen2", {"tie_word_embeddings": True}), ("Qwen3", {"attention_bias": True}),
    ("GPTJ", {"rotary_dim": 4}), ("GPTNeoX", {}),
    ("Qwen3Moe", {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8, "decoder_sparse_step": 1}),
]  # fmt: skip
CLASSIFIERS = ["Bert", "Roberta", "XLMRoberta", "ModernBert", "Qwen2", "Qwen3"]


def saved(folder: Path, kind: str, head: str, settings: dict[str, Any], **how: Any) -> Path:
    """A model of this architecture with random weights, as transformers saves it."""
    import transformers

    config = getattr(transformers, f"{kind}Config")(**{**SIZES, **settings})
    getattr(transformers, f"AutoModel{head}").from_config(config).save_pretrained(folder, **how)
    return folder


@pytest.mark.parametrize("how", [{}, {"max_shard_size": "5KB"}], ids=["one file", "shards"])
@pytest.mark.parametrize(("kind", "settings"), WRITERS)
def test_models_of_other_architectures_are_whole(
    tmp_path: Path, kind: str, settings: dict[str, Any], how: dict[str, Any]
) -> None:
    from transformers import AutoModelForCausalLM

    model = load_whole(AutoModelForCausalLM, saved(tmp_path / "model", kind, "ForCausalLM", settings, **how))

    assert {parameter.device.type for parameter in model.parameters()} == {"cpu"}


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_classifiers_that_the_style_line_trains_are_whole(tmp_path: Path, kind: str) -> None:
    from transformers import AutoModelForSequenceClassification

    folder = saved(tmp_path / "model", kind, "ForSequenceClassification", {"num_labels": 5})

    assert load_whole(AutoModelForSequenceClassification, folder).config.num_labels == 5


def with_settings(folder: Path, settings: dict[str, Any]) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **settings}))
    return folder


SETTINGS: list[Any] = [
    ({"intermediate_size": 1 << 20}, "down_proj.weight has the shape"),
    ({"num_hidden_layers": 40, "layer_types": ["full_attention"] * 40}, "files lack model.layers.1"),
    ({"num_hidden_layers": 1, "layer_types": ["full_attention"]}, "files hold model.layers.1"),
    ({"num_attention_heads": 64}, "self_attn.o_proj.weight has the shape"),
    ({"hidden_size": 32}, "has the shape"),
    ({"vocab_size": 1 << 20}, "model.embed_tokens.weight has the shape"),
    ({"tie_word_embeddings": False}, "files lack lm_head.weight"),
    ({"attention_bias": True}, "files lack model.layers.0.self_attn"),
    ({"model_type": "qwen2"}, "no whole model"),
    ({"model_type": "gpt2"}, "files lack"),
    ({"model_type": "gptj", "n_positions": 1 << 24, "n_embd": 1 << 12, "rotary_dim": 64}, "files lack"),
    ({"model_type": "nothing"}, "no whole model"),
    ({"hidden_act": "none-such"}, "no whole model"),
    ({"head_dim": "8"}, "no whole model"),
    ({"intermediate_size": 1 << 62}, "no whole model"),
]  # fmt: skip


@pytest.mark.parametrize(("settings", "why"), SETTINGS)
def test_a_configuration_that_its_files_do_not_fill_is_refused(
    tmp_path: Path, settings: dict[str, Any], why: str
) -> None:
    from transformers import AutoModelForCausalLM

    folder = with_settings(tiny_model(tmp_path / "model"), settings)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    with pytest.raises(DataError, match="no whole model") as refused:
        load_whole(AutoModelForCausalLM, folder, dtype=torch.float32)

    assert why in str(refused.value) and str(folder) in str(refused.value)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 << 10, "memory was allocated first"


Tensors = dict[str, torch.Tensor]


UP = "model.layers.0.mlp.up_proj.weight"
LAST = "model.layers.1.mlp.up_proj.weight"
NORM = "model.norm.weight"
CHANGES: dict[str, Callable[[Tensors], object]] = {
    "one lacks": lambda tensors: tensors.pop(LAST),
    "all layers lack": lambda tensors: [tensors.pop(name) for name in [*tensors] if ".layers." in name],
    "the last norm lacks": lambda tensors: tensors.pop(NORM),
    "one more": lambda tensors: tensors.update({"model.other.weight": torch.zeros(1)}),
    "a layer more": lambda tensors: tensors.update({"model.layers.2.mlp.up_proj.weight": torch.zeros(48, 16)}),
    "renamed": lambda tensors: tensors.update({LAST.replace("up", "UP"): tensors.pop(LAST)}),
    "turned": lambda tensors: tensors.update({UP: tensors[UP].T.contiguous()}),
    "flat": lambda tensors: tensors.update({UP: tensors[UP].flatten()}),
    "empty": lambda tensors: tensors.update({NORM: torch.zeros(0)}),
    "of one number": lambda tensors: tensors.update({NORM: torch.tensor(1.0)}),
}
MODELS: list[Any] = [
    pytest.param(tiny_model, Student.load, id="rewriter"),
    pytest.param(tiny_style_model, StyleModel.load, id="style"),
]


@pytest.mark.parametrize("sharded", [False, True], ids=["one file", "shards"])
@pytest.mark.parametrize(("make", "load"), MODELS)
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_files_with_other_tensors_than_the_configuration_has_are_refused(
    tmp_path: Path, change: Callable[[Tensors], object], make: Any, load: Callable[[Path], Any], sharded: bool
) -> None:
    folder = make(tmp_path / "model")
    tensors = load_file(folder / WEIGHTS)
    change(tensors)
    if sharded:
        (folder / WEIGHTS).unlink()
        shards = {name: f"model-{number}.safetensors" for number, name in enumerate(sorted(tensors))}
        for name, file in shards.items():
            save_file({name: tensors[name]}, folder / file, metadata={"format": "pt"})
        (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": shards}))
    else:
        save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})

    with pytest.raises(DataError, match=r"no whole model: .*Copy it again"):
        load(folder)


def test_tables_of_positions_that_no_file_holds_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import AutoModelForCausalLM

    folder = saved(tmp_path / "model", "GPTNeoX", "ForCausalLM", {})
    monkeypatch.setattr(whole_model, "LARGEST_BUFFERS", 7)

    with pytest.raises(DataError, match="bytes of buffers, and 7 is the most"):
        load_whole(AutoModelForCausalLM, folder)
