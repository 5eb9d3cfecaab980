"""A sample tenant's content: its data file, and the random draws that passages and conversations share."""

import itertools
import random
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

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
    """Sentences of the house about it."""

    asks: Templates = Field(min_length=3)
    """Users' phrasings of it."""


class Filler(Config):
    """A kind of passage that answers no question but shares words with those that do."""

    kind: str
    title: str
    content: str


class TenantContent(Config):
    """A tenant's data file; the numbers that steer learning are in SampleSettings."""

    items: tuple[tuple[Templates, ...], ...]
    """Groups; each is the product of its parts, so that siblings differ in a character or two."""

    aspects: dict[str, Aspect]
    """The aspects, by the house's term."""

    fillers: tuple[Filler, ...]
    profiles: Templates
    openings: Templates
    endings: Templates
    histories: Templates
    histories_second_first: Templates
    """Histories that name the other item before the one in question."""

    seconds: Templates
    olds: Templates
    detours: Templates
    """Talk about another item and an aspect of it, of a conversation that wanders."""

    self_contained: Templates

    def names(self) -> list[str]:
        """Every item, in the file's order."""
        return ["".join(parts) for group in self.items for parts in itertools.product(*group)]

    def numbered_names(self) -> list[str]:
        """Item names in the same number as `names`, whose siblings differ in a number in place of their last part."""
        groups = [(*group[:-1], [f"第{number}款" for number in range(1, len(group[-1]) + 1)]) for group in self.items]
        return ["".join(parts) for group in groups for parts in itertools.product(*group)]


class SampleSettings(Config):
    """Numbers of a world in which learning shows; README.md says how they were found."""

    documented: Fraction = 0.93
    """Share of passages that list users' phrasings."""

    rare: Fraction = 0.04
    """Share of passages that list the rare phrasing of their aspect: the vocabulary gap."""

    unseen: Fraction = 0.05
    """Share of dev and test questions in a phrasing that no training conversation has."""

    second_item: Fraction = 0.06
    """Share of conversations whose history also names another item."""

    self_contained: Fraction = 0.10
    """Share of questions that are complete and in house terms, which a good rewriter does not change."""

    held_out: Fraction = 0.45
    """Share of the pairs of an item and an aspect that occur only in dev and test."""

    new_items: Fraction = 1 / 12
    """Share of items without a training conversation."""

    plain_titles: bool = False
    """Give every passage of an item the same title, and name the aspect in its text: no title is a query."""

    numbered_items: bool = False
    """Let sibling items differ in a number only, such as 鱼油第1款 and 鱼油第2款."""

    detours: int = Field(default=0, ge=0)
    """Number of other items and aspects in a history, around the item in question."""

    wrong: Fraction = 0.0
    """Share of rows, of every split, with the gold passage of another question."""

    two_things: Fraction = 0.0
    """Share of incomplete questions that also ask for a second aspect of the item; both passages are gold."""


UNDOCUMENTED: dict[str, Any] = {"documented": 0.0, "rare": 0.0}
PLAIN_TITLES: dict[str, Any] = {"plain_titles": True}
ONE_NUMBER: dict[str, Any] = {"numbered_items": True}
WANDERING: dict[str, Any] = {"detours": 4}
WRONG_ROWS: dict[str, Any] = {"wrong": 0.05}
TWO_THINGS: dict[str, Any] = {"two_things": 0.5}

VARIANTS: dict[str, SampleSettings] = {
    "plain": SampleSettings(),
    "undocumented": SampleSettings(**UNDOCUMENTED),
    "plain-titles": SampleSettings(**PLAIN_TITLES),
    "one-number": SampleSettings(**ONE_NUMBER),
    "wandering": SampleSettings(**WANDERING),
    "wrong-rows": SampleSettings(**WRONG_ROWS),
    "two-things": SampleSettings(**TWO_THINGS),
    "all": SampleSettings(**UNDOCUMENTED, **PLAIN_TITLES, **ONE_NUMBER, **WANDERING, **WRONG_ROWS, **TWO_THINGS),
}
"""Worlds by name: the plain one, each hardship by itself, and all hardships together."""


class TenantDraw(NamedTuple):
    """Draws of one seed that passages and conversations share."""

    world: TenantContent
    items: list[str]
    gaps: dict[str, str]
    """The rare phrasing of each aspect."""

    unseen: dict[str, str]
    """The phrasing of each aspect that training never has."""

    new_items: frozenset[str]
    pairs: dict[str, list[ItemAspect]]
    """The pairs of each split; no pair is in two."""

    settings: SampleSettings


@cache
def load_tenant_content(tenant: str) -> TenantContent:
    if tenant not in TENANTS:
        raise ConfigError(f"No sample tenant {tenant!r}. There are: {', '.join(TENANTS)}.")
    path = content_file(tenant)
    return TenantContent.parse(load_yaml(path), str(path))


def content_file(tenant: str) -> Path:
    """The data file of a sample tenant."""
    return FOLDER / f"{tenant}.yaml"


def variant_settings(variant: str) -> SampleSettings:
    """The numbers of a variant; a ConfigError that lists the variants if it is unknown."""
    if variant not in VARIANTS:
        raise ConfigError(f"No variant {variant!r} of a sample. There are: {', '.join(VARIANTS)}.")
    return VARIANTS[variant]


def draw_tenant(tenant: str, seed: int, settings: SampleSettings = VARIANTS["plain"]) -> TenantDraw:
    """Draw a sample's world; it does not depend on the number of conversations."""
    world, rng = load_tenant_content(tenant), random.Random(f"{tenant}-{seed}")
    items = world.numbered_names() if settings.numbered_items else world.names()
    picked = {term: rng.sample(aspect.asks, 2) for term, aspect in world.aspects.items()}
    gaps, unseen = ({term: asks[at] for term, asks in picked.items()} for at in (0, 1))
    new_items = frozenset(rng.sample(items, round(len(items) * settings.new_items)))
    pairs = _split_pairs(world, items, new_items, settings.held_out, rng)
    return TenantDraw(world, items, gaps, unseen, new_items, pairs, settings)


def _split_pairs(
    world: TenantContent, items: list[str], new_items: frozenset[str], held_out: float, rng: random.Random
) -> dict[str, list[ItemAspect]]:
    pairs = list(itertools.product(items, world.aspects))
    rng.shuffle(pairs)
    known = [pair for pair in pairs if pair[0] not in new_items]
    cut = round(len(known) * held_out)
    held = known[:cut] + [pair for pair in pairs if pair[0] in new_items]
    return {"train": known[cut:], "dev": held[::2], "test": held[1::2]}
