"""Sizes and options that fit reads from the manifests."""

import pytest

from pipelines.checks.sizing.manifests import claimed_bytes, vllm_runtime
from pipelines.lines.config import TRAINING, load_config
from pipelines.lines.rewriter import student_gpus
from qinglan.config import load_yaml
from qinglan.sizing.cards import MEMORY, PRODUCT, card_of_labels, card_of_size, known_cards
from qinglan.sizing.constants import GIB


def test_the_gpu_runtime_is_read_from_its_manifest() -> None:
    runtime = vllm_runtime("qinglan-rewriter-vllm")

    assert runtime and runtime.settings.tensor_parallel == 2 and runtime.settings.lora_rank == 128
    assert card_of_labels(runtime.labels) == known_cards()["NVIDIA-A100-SXM4-80GB"]
    assert vllm_runtime("qinglan-rewriter-cpu") is None


@pytest.mark.slow
def test_an_overlays_claim_counts_before_the_bases() -> None:
    assert claimed_bytes("qinglan-knowledge") == 10 * GIB
    assert claimed_bytes("qinglan-scratch") > 500 * GIB
    assert claimed_bytes("nobody") == 0


def test_a_card_is_known_by_its_label_or_by_the_size_in_it() -> None:
    assert card_of_labels({PRODUCT: "NVIDIA-L4"}) == known_cards()["NVIDIA-L4"]
    foreign = card_of_labels({PRODUCT: "NVIDIA-A800-SXM4-80GB"})
    assert foreign and (foreign.name, foreign.memory) == ("NVIDIA-A800-SXM4-80GB", 80)
    assert card_of_labels({MEMORY: "24564"}) == card_of_size(24) != card_of_size(23)
    assert card_of_labels({PRODUCT: "Tesla-T4"}) is None and card_of_labels({}) is None


def test_no_card_can_use_more_than_it_is_sold_with() -> None:
    assert all(0.9 * card.memory < card.usable / GIB < card.memory for card in known_cards().values())
    assert card_of_size(96).usable == 96 * 0.92 * GIB


@pytest.mark.parametrize("name", ["a100x4", "a100x8", "a100x8-full", "a100-multinode"])
def test_a_student_is_timed_on_as_many_cards_as_its_runtime_serves_it_on(name: str) -> None:
    """The one-gpu profiles say that the manifest is changed to one card."""
    config = load_config("fivedoctors", "gpt", training=name)
    values = load_yaml(TRAINING / f"{name}.yaml")
    runtime = vllm_runtime(values["deploy"]["runtime"])

    assert runtime is not None
    assert config.evaluate.serving_gpus == runtime.settings.tensor_parallel == student_gpus(config) == 2
