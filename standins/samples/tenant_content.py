"""A sample tenant's content: its data file, and the draws of one seed that every part shares."""

import itertools
import random
from functools import cache
from pathlib import Path
from typing import NamedTuple

from pydantic import Field

from qinglan.config import Config, Fraction, load_yaml
from qinglan.errors import ConfigError

FOLDER = Path(__file__).parent
TENANTS = tuple(sorted(path.stem for path in FOLDER.glob("*.yaml")))

Templates = tuple[str, ...]
ItemAspect = tuple[str, str]
"""An item and an aspect of it: what one passage says and one question asks for."""


class Aspect(Config):
    """A property that every item has, in two languages."""

    bodies: Templates
    """How the house writes of it."""

    asks: Templates = Field(min_length=3)
    """How users ask for it."""


class Filler(Config):
    """A kind of passage that answers no question but shares words with those that do."""

    kind: str
    title: str
    content: str


class TenantContent(Config):
    """A tenant's data file: content without any number that steers learning."""

    items: tuple[tuple[Templates, ...], ...]
    """Groups; each is the product of its parts, so that siblings differ in a character or two."""

    aspects: dict[str, Aspect]
    """By the house's term."""

    fillers: tuple[Filler, ...]
    profiles: Templates
    openings: Templates
    endings: Templates
    histories: Templates
    histories_second_first: Templates
    """Histories that name the other item before the one in question."""

    seconds: Templates
    olds: Templates
    self_contained: Templates

    def names(self) -> list[str]:
        """Every item, in the file's order."""
        return ["".join(parts) for group in self.items for parts in itertools.product(*group)]


class SampleSettings(Config):
    """The numbers that make a world in which learning can show; README.md tells how they were found."""

    documented: Fraction = 0.93
    """Passages whose author wrote down how users ask."""

    rare: Fraction = 0.04
    """Passages that write down the one phrasing of each aspect that authors hardly think of: the vocabulary gap."""

    unseen: Fraction = 0.05
    """Dev and test questions in a phrasing that no training conversation uses."""

    second_item: Fraction = 0.06
    """Conversations whose history names another item too."""

    self_contained: Fraction = 0.10
    """Questions that are complete and in house terms: a good rewriter leaves them alone."""

    held_out: Fraction = 0.45
    """Pairs of an item and an aspect that only dev and test ask for."""

    new_items: Fraction = 1 / 12
    """Items that no training conversation is about."""


SAMPLE_SETTINGS = SampleSettings()


class TenantDraw(NamedTuple):
    """Draws of one seed that passages and conversations share."""

    world: TenantContent
    items: list[str]
    gaps: dict[str, str]
    """Aspect to the phrasing that passages hardly ever hold."""

    unseen: dict[str, str]
    """Aspect to the phrasing that training never uses."""

    new_items: frozenset[str]
    pairs: dict[str, list[ItemAspect]]
    """By split; no pair is in two."""


@cache
def load_tenant_content(tenant: str) -> TenantContent:
    if tenant not in TENANTS:
        raise ConfigError(f"No sample tenant {tenant!r}. There are: {', '.join(TENANTS)}.")
    path = content_file(tenant)
    return TenantContent.parse(load_yaml(path), str(path))


def content_file(tenant: str) -> Path:
    """The data file of a sample tenant."""
    return FOLDER / f"{tenant}.yaml"


def draw_tenant(tenant: str, seed: int) -> TenantDraw:
    """The same for the same tenant and seed, however many conversations are asked for."""
    world, rng = load_tenant_content(tenant), random.Random(f"{tenant}-{seed}")
    items = world.names()
    picked = {term: rng.sample(aspect.asks, 2) for term, aspect in world.aspects.items()}
    gaps, unseen = ({term: asks[at] for term, asks in picked.items()} for at in (0, 1))
    new_items = frozenset(rng.sample(items, round(len(items) * SAMPLE_SETTINGS.new_items)))
    return TenantDraw(world, items, gaps, unseen, new_items, _split_pairs(world, items, new_items, rng))


def _split_pairs(
    world: TenantContent, items: list[str], new_items: frozenset[str], rng: random.Random
) -> dict[str, list[ItemAspect]]:
    pairs = list(itertools.product(items, world.aspects))
    rng.shuffle(pairs)
    known = [pair for pair in pairs if pair[0] not in new_items]
    cut = round(len(known) * SAMPLE_SETTINGS.held_out)
    held = known[:cut] + [pair for pair in pairs if pair[0] in new_items]
    return {"train": known[cut:], "dev": held[::2], "test": held[1::2]}
