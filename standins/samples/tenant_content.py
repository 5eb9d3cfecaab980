"""Content of a sample tenant: its data file, and the random choices that passages and conversations share."""

import itertools
import random
from collections import ChainMap
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
"""Item and aspect: the subject of one passage and of the questions that it answers."""


class Aspect(Config):
    """Property that every item has, in the company's words and in users' words."""

    bodies: Templates
    """Sentences of the company about the aspect."""

    asks: Templates = Field(min_length=3)
    """Users' questions about the aspect."""


class Filler(Config):
    """Kind of passage that answers no question, but shares words with answering passages."""

    kind: str
    title: str
    content: str


class TenantContent(Config):
    """Content of a tenant's data file. The numbers that influence learning are in SampleSettings."""

    items: tuple[tuple[Templates, ...], ...]
    """Groups of items. A group has all combinations of its parts, so its items differ in a character or two."""

    aspects: dict[str, Aspect]
    """Aspects by the company's term."""

    fillers: tuple[Filler, ...]
    profiles: Templates
    openings: Templates
    endings: Templates
    histories: Templates
    histories_second_first: Templates
    """Histories that name the other item before the item of the question."""

    seconds: Templates
    olds: Templates
    detours: Templates
    """Talk about another item and one of its aspects, for conversations that change the subject."""

    self_contained: Templates

    def names(self) -> list[str]:
        """Names of all items, in the order of the file."""
        return ["".join(parts) for group in self.items for parts in itertools.product(*group)]

    def numbered_names(self) -> list[str]:
        """Return as many names as `names`, but with a number as the last part, in which the items of a group
        differ."""
        groups = [(*group[:-1], [f"第{number}款" for number in range(1, len(group[-1]) + 1)]) for group in self.items]
        return ["".join(parts) for group in groups for parts in itertools.product(*group)]


class SampleSettings(Config):
    """Settings of a sample in which learning has a visible effect; README.md explains how they were chosen."""

    documented: Fraction = 0.93
    """Share of answering passages that list the common users' phrasings."""

    rare: Fraction = 0.04
    """Share of answering passages that list the rare phrasing of their aspect; the others have a vocabulary gap."""

    unseen: Fraction = 0.05
    """Share of the incomplete dev and test questions with a phrasing that is in no training conversation."""

    second_item: Fraction = 0.06
    """Share of conversations whose history also names another item."""

    self_contained: Fraction = 0.10
    """Share of questions that are complete and use the company's terms; a good rewriter does not change them."""

    held_out: Fraction = 0.45
    """Share of the pairs of item and aspect that occur only in dev and test."""

    new_items: Fraction = 1 / 12
    """Share of items that occur in no training conversation."""

    plain_titles: bool = False
    """True to give all answering passages of an item the same title, and name the aspect in the text."""

    numbered_items: bool = False
    """True to let the items of a group differ only in a number, such as 鱼油第1款 and 鱼油第2款."""

    detours: int = Field(default=0, ge=0)
    """Number of remarks about other items in a history, before and after the item of the question."""

    wrong: Fraction = 0.0
    """Share of rows in every split that have the gold passage of another question."""

    two_things: Fraction = 0.0
    """Share of incomplete questions that also ask for a second aspect of the item; both passages are gold."""


DIFFICULTIES: dict[str, dict[str, Any]] = {
    "undocumented": {"documented": 0.0, "rare": 0.0},
    "plain-titles": {"plain_titles": True},
    "one-number": {"numbered_items": True},
    "wandering": {"detours": 4},
    "wrong-rows": {"wrong": 0.05},
    "two-things": {"two_things": 0.5},
}
VARIANTS: dict[str, SampleSettings] = {
    "plain": SampleSettings(),
    **{name: SampleSettings(**values) for name, values in DIFFICULTIES.items()},
    "all": SampleSettings(**dict(ChainMap(*DIFFICULTIES.values()))),
}
"""Settings by name of the variant: the plain sample, each difficulty by itself, and all difficulties together."""


class TenantDraw(NamedTuple):
    """Random choices of one seed that passages and conversations share."""

    world: TenantContent
    items: list[str]
    gaps: dict[str, str]
    """Rare phrasing of each aspect."""

    unseen: dict[str, str]
    """Phrasing of each aspect that never occurs in training."""

    new_items: frozenset[str]
    pairs: dict[str, list[ItemAspect]]
    """Pairs of item and aspect by split; no pair is in two splits."""

    settings: SampleSettings


@cache
def load_tenant_content(tenant: str) -> TenantContent:
    if tenant not in TENANTS:
        raise ConfigError(f"No sample tenant {tenant!r}. There are: {', '.join(TENANTS)}.")
    path = content_file(tenant)
    return TenantContent.parse(load_yaml(path), str(path))


def content_file(tenant: str) -> Path:
    return FOLDER / f"{tenant}.yaml"


def variant_settings(variant: str) -> SampleSettings:
    """Return a variant's settings. Raises a ConfigError that lists the variants if the variant is unknown."""
    if variant not in VARIANTS:
        raise ConfigError(f"No variant {variant!r} of a sample. There are: {', '.join(VARIANTS)}.")
    return VARIANTS[variant]


def draw_tenant(tenant: str, seed: int, settings: SampleSettings = VARIANTS["plain"]) -> TenantDraw:
    """Make the random choices of a sample; they do not depend on the number of conversations."""
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
