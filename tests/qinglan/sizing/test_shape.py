"""The parameters that formulas count are those of transformers' and PEFT's own models."""

from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from qinglan.errors import ConfigError, DataError
from qinglan.sizing.shape import SHAPES, known_shapes, read_shape, shape_of
from tests.models.qwen3 import CONFIG, PARAMETERS
from tests.qinglan.sizing.models import SMALL, causal_lm, count, critic, small_shape, with_adapter

FAMILIES = [
    {}, {"tie_word_embeddings": True}, {"model_type": "qwen2"}, {"model_type": "llama"}, {"model_type": "mistral"},
    {"attention_bias": True}, {"model_type": "llama", "attention_bias": True},
]  # fmt: skip


@pytest.mark.parametrize("changes", FAMILIES)
def test_a_shape_has_as_many_parameters_as_transformers_model(changes: dict[str, Any]) -> None:
    settings = SMALL | changes

    assert small_shape(**changes).parameters == count(causal_lm(settings))


def test_a_critic_has_one_output_in_place_of_the_output_layer() -> None:
    assert small_shape().classifier(1, bias=True) == count(critic(SMALL))


@pytest.mark.slow
@pytest.mark.parametrize("rank", [4, 16])
def test_an_adapter_has_as_many_parameters_as_pefts(rank: int) -> None:
    assert small_shape().adapter(rank) == count(with_adapter(causal_lm(SMALL), rank), trained=True)


@pytest.mark.slow
def test_qwen3_32b_is_counted_to_the_last_parameter() -> None:
    shape = known_shapes()["Qwen/Qwen3-32B"]

    assert shape == shape_of(CONFIG, "test")
    assert shape.parameters == PARAMETERS == count(causal_lm(CONFIG))


@pytest.mark.parametrize("name", [name for name in known_shapes() if "32B" not in name])
def test_the_table_of_public_shapes_is_what_transformers_builds(name: str) -> None:
    settings = yaml.safe_load(SHAPES.read_text(encoding="utf-8"))[name]

    assert known_shapes()[name].parameters == count(causal_lm(settings))


@pytest.mark.parametrize("all_weights", [True, False])
def test_adamw_holds_eight_bytes_for_each_trained_parameter(all_weights: bool) -> None:
    model = causal_lm(SMALL, "cpu")
    model = model if all_weights else with_adapter(model, 4)
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(trained)

    model(input_ids=torch.zeros(1, 4, dtype=torch.long), labels=torch.zeros(1, 4, dtype=torch.long)).loss.backward()
    optimizer.step()

    moments = [value for state in optimizer.state.values() for name, value in state.items() if name != "step"]
    expected = small_shape().parameters if all_weights else small_shape().adapter(4)
    assert sum(tensor.nbytes for tensor in moments) == 8 * expected


def test_keys_and_values_are_those_of_transformers_cache() -> None:
    model = causal_lm(SMALL, "cpu", torch.bfloat16)

    with torch.no_grad():
        cache = model(input_ids=torch.zeros(1, 5, dtype=torch.long), use_cache=True).past_key_values

    held = sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)
    assert held == 5 * small_shape().cached() * 2


def test_heads_are_divided_over_cards_and_repeated_where_there_are_too_few() -> None:
    shape = small_shape()

    assert [shape.cached(cards) for cards in (1, 2, 4)] == [384, 192, 192]


def test_an_unknown_architecture_is_not_counted_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}', encoding="utf-8")

    with pytest.raises(ConfigError, match=r"model_type 'gpt2'.*qwen3"):
        read_shape(tmp_path)


@pytest.mark.parametrize("content", ["{", "[]", '{"model_type": "qwen3"}'])
def test_a_config_that_cannot_be_read_names_the_file(content: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(content, encoding="utf-8")

    with pytest.raises(DataError, match=r"config\.json.*Download the model again"):
        read_shape(tmp_path)
