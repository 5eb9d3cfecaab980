"""The cache of keys and values has as many blocks as vLLM makes of the same bytes."""

from qinglan.sizing.vllm import VllmSettings, least_phase, settings_of_options
from tests.qinglan.sizing.models import small_shape

SHAPE = small_shape(num_attention_heads=8, num_key_value_heads=4, head_dim=64, num_hidden_layers=3)


def test_an_adapters_slots_are_divided_over_the_cards() -> None:
    names = [
        {part.name: part.bytes for part in least_phase(SHAPE, VllmSettings(cards, lora_slots=2, lora_rank=8)).amounts}
        for cards in (1, 2)
    ]

    assert names[0]["adapters"] == 2 * SHAPE.adapter(8) * 2 == 2 * names[1]["adapters"]


def test_the_options_of_a_command_line_are_read_and_the_rest_is_vllms_default() -> None:
    options = [
        "--port=8085", "--tensor-parallel-size=2", "--enable-lora", "--max-lora-rank=128", "--max-model-len=2048",
        "--gpu-memory-utilization=0.8", "--max-loras=2",
    ]  # fmt: skip

    assert settings_of_options(options) == VllmSettings(2, 0.8, 2048, 2, 128)
    assert settings_of_options(["--max-lora-rank=128"]) == VllmSettings()
