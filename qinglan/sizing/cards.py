"""GPUs: the memory that a program can use, and published speeds."""

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from qinglan.sizing.constants import GIB

CARDS = Path(__file__).with_name("cards.yaml")
PRODUCT, MEMORY = "nvidia.com/gpu.product", "nvidia.com/gpu.memory"
"""Labels of a Kubernetes node: the name of its GPU, and the GPU's memory in MiB."""

USABLE_SHARE = 0.92
"""Share of an unknown card's memory that a program can use. It is the lowest of the known cards, that of an L4."""


class Card(NamedTuple):
    name: str
    memory: float
    """Memory in GB, as the card is sold."""

    usable: float
    """Bytes that a program can use."""

    teraflops: float = 0.0
    """Teraflops of dense operations in bf16; 0 if unknown."""

    bandwidth: float = 0.0
    """Bandwidth of the memory in GB per second; 0 if unknown."""


@cache
def known_cards() -> dict[str, Card]:
    """Read the known cards, by the value of the label `nvidia.com/gpu.product`."""
    import yaml

    table = yaml.safe_load(CARDS.read_text(encoding="utf-8"))
    return {
        name: Card(name, row["memory"], row["usable"] * GIB, row["teraflops"], row["bandwidth"])
        for name, row in table.items()
    }


def card_of_size(memory: float) -> Card:
    """Return a card with the data of the first known card that has this many GB. Without such a card, only the memory
    of the returned card is known."""
    for card in known_cards().values():
        if card.memory == memory:
            return card._replace(name=f"{memory:g} GB, as {card.name}")
    return Card(f"{memory:g} GB", memory, memory * USABLE_SHARE * GIB)


def card_of_labels(labels: Mapping[str, str]) -> Card | None:
    """Return the card that a node's labels name; None if the labels name no size."""
    # The labels of NVIDIA's GPU feature discovery; the memory is in MiB:
    # https://github.com/NVIDIA/k8s-device-plugin/blob/main/docs/gpu-feature-discovery/README.md
    product, memory = labels.get(PRODUCT, ""), labels.get(MEMORY, "")
    if card := known_cards().get(product):
        return card
    if memory.isdecimal():
        return card_of_size(round(int(memory) / 1024))
    size = re.search(r"(\d+)GB", product)
    return card_of_size(float(size[1]))._replace(name=product) if size else None
