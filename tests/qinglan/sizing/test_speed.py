"""Seconds of a training by its operations and by the parts of its batches."""

import pytest

from qinglan.sizing.cards import known_cards
from qinglan.sizing.constants import LAYER_SECONDS, UTILISATION
from qinglan.sizing.speed import compute_seconds, crossing_seconds, training_seconds

CARD = known_cards()["NVIDIA-H100-80GB-HBM3"]


def test_a_large_model_computes_and_a_small_one_waits_for_its_kernels() -> None:
    operations = 10 * CARD.teraflops * 1e12 * UTILISATION.value

    assert training_seconds(operations, 8, 64, CARD, 1) == compute_seconds(operations, CARD, 1) == pytest.approx(10)
    assert training_seconds(operations / 1000, 8, 28, CARD, 1) == pytest.approx(8 * 28 * LAYER_SECONDS.value)


@pytest.mark.parametrize(
    ("cards", "nodes", "seconds"), [(8, 1, 0.0), (2, 2, 5.0), (8, 2, 8.75), (16, 2, 9.375), (16, 4, 9.375)]
)
def test_all_but_one_cards_part_enters_each_machine(cards: int, nodes: int, seconds: float) -> None:
    assert crossing_seconds(10e9, cards, nodes, 1e9) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("layers", "multiplied", "rows", "measured"),
    [(28, 5.96e8, 2, 0.24), (36, 4.02e9, 2, 0.32), (36, 7.57e9, 2, 0.35), (64, 3.198e10, 1, 0.62)],
)
def test_steps_that_an_h100_made_are_reckoned_within_a_quarter(
    layers: int, multiplied: float, rows: int, measured: float
) -> None:
    """LoRA of Qwen3-0.6B, 4B, 8B and 32B, rows of 1,024 tokens: one part of a batch each (docs/gpu.md)."""
    operations = 6 * multiplied * rows * 1024

    assert training_seconds(operations, 1, layers, CARD, 1) == pytest.approx(measured, rel=0.25)
