"""Conversations of a sample tenant: incomplete, colloquial questions about one item, each with a history summary.

Each conversation has its own random numbers, so a larger sample begins with the conversations of a smaller one.
"""

import random
from collections.abc import Iterator, Mapping, Sized
from typing import NamedTuple

from qinglan.rows.rows import Split
from standins.samples.tenant_content import ItemAspect, TenantDraw, draw_tenant

SPLITS: tuple[Split, ...] = ("train", "dev", "train", "test")
"""Splits of consecutive conversations: half train, a quarter dev, a quarter test, in each part of the file."""

TURNS = (2, 3, 4)
JOINER = "，还有"
UNLIMITED = 10**9


class Turn(NamedTuple):
    """Question of a conversation, with properties that only the evaluation reads."""

    id: str
    conversation: str
    split: Split
    question: str
    profile: str
    history: str
    item: str
    term: str
    gap: bool
    new_item: bool
    new_ask: bool
    self_contained: bool
    second_term: str = ""
    """Second aspect in the same question; empty for none."""

    wrong: ItemAspect | None = None
    """Pair of item and aspect whose passage is wrongly labelled as gold; None in most rows."""

    @property
    def gold(self) -> list[ItemAspect]:
        """Pairs of item and aspect whose passages are labelled as gold in the sheet."""
        if self.wrong:
            return [self.wrong]
        return [(self.item, term) for term in (self.term, self.second_term) if term]


class ConversationTraits(NamedTuple):
    """Properties that stay the same during one conversation."""

    id: str
    split: Split
    item: str
    other: str
    """Other item, about which the user asked before or with which the user compares."""

    compares: bool
    """True if the history also names the other item."""

    profile: str


def conversation_turns(tenant: str, seed: int, drawn: TenantDraw, count: int) -> Iterator[Turn]:
    by_item = {split: _by_item(drawn, split) for split in ("train", "dev", "test")}
    for number in range(count):
        rng = random.Random(f"{tenant}-{seed}-{number}")
        split = SPLITS[number % len(SPLITS)]
        talk = _talk(f"{tenant}-c{number:06d}", split, list(by_item[split]), drawn, rng)
        terms = by_item[split][talk.item]
        chosen = rng.sample(terms, min(len(terms), rng.choice(TURNS)))
        # Hardships have random numbers of their own, so that they do not change the plain sample.
        hardships = random.Random(f"{tenant}-{seed}-{number}-hardships")
        yield from _talk_turns(talk, chosen, by_item[split], drawn, rng, hardships)


def fresh_turns(tenant: str, seed: int, fresh_seed: int) -> Iterator[Turn]:
    """Yield endless new turns about the content that `seed` has drawn, without the subjects of the test split."""
    if fresh_seed == seed:
        raise ValueError("fresh questions need a seed of their own")
    every = conversation_turns(tenant, fresh_seed, draw_tenant(tenant, seed), UNLIMITED)
    return (turn for turn in every if turn.split != "test")


def _by_item(drawn: TenantDraw, split: Split) -> dict[str, list[str]]:
    conversations: dict[str, list[str]] = {}
    for item, term in drawn.pairs[split]:
        conversations.setdefault(item, []).append(term)
    return dict(sorted(conversations.items()))


def _talk(id: str, split: Split, items: list[str], drawn: TenantDraw, rng: random.Random) -> ConversationTraits:
    item = rng.choice(items)
    other = rng.choice([name for name in drawn.items if name != item])
    return ConversationTraits(
        id, split, item, other, rng.random() < drawn.settings.second_item, rng.choice(drawn.world.profiles)
    )


def _talk_turns(
    talk: ConversationTraits,
    terms: list[str],
    by_item: Mapping[str, list[str]],
    drawn: TenantDraw,
    rng: random.Random,
    hardships: random.Random,
) -> Iterator[Turn]:
    """Yield one turn for each of these terms. `by_item` has all terms of the split by item."""
    old = rng.choice(list(drawn.world.aspects)) if rng.random() < 0.5 else ""
    for number, term in enumerate(terms):
        complete = rng.random() < drawn.settings.self_contained
        ask = "" if complete else _ask(talk.split, term, drawn, rng)
        second = "" if complete else _second_term(by_item[talk.item], term, drawn, hardships)
        more = JOINER + _ask(talk.split, second, drawn, hardships) if second else ""
        yield Turn(
            id=f"{talk.id}-{number}",
            conversation=talk.id,
            split=talk.split,
            question=rng.choice(drawn.world.self_contained).format(item=talk.item, term=term)
            if complete
            else rng.choice(drawn.world.openings) + ask + more + rng.choice(drawn.world.endings),
            profile=talk.profile,
            history=_opening_history(talk, old, drawn, rng)
            if complete and number == 0
            else _wandering(_history(talk, old, drawn, rng), drawn, hardships),
            item=talk.item,
            term=term,
            gap=ask == drawn.gaps[term],
            new_item=talk.item in drawn.new_items,
            new_ask=ask == drawn.unseen[term],
            self_contained=complete,
            second_term=second,
            wrong=_wrong_pair(talk, by_item, drawn, hardships),
        )
        old = term


def _ask(split: Split, term: str, drawn: TenantDraw, rng: random.Random) -> str:
    """Choose a user's phrasing. The unseen phrasing occurs only in a share of the dev and test questions."""
    if split != "train" and rng.random() < drawn.settings.unseen:
        return drawn.unseen[term]
    return rng.choice([ask for ask in drawn.world.aspects[term].asks if ask != drawn.unseen[term]])


def _second_term(terms: list[str], term: str, drawn: TenantDraw, rng: random.Random) -> str:
    """Choose a second term of the item for a share `two_things` of the questions; "" for the others."""
    choices = [other for other in terms if other != term]
    return rng.choice(choices) if choices and rng.random() < drawn.settings.two_things else ""


def _wrong_pair(talk: ConversationTraits, by_item: Sized, drawn: TenantDraw, rng: random.Random) -> ItemAspect | None:
    """Choose a pair of the same split about another item for a share `wrong` of the rows; None for the others."""
    if len(by_item) == 1 or rng.random() >= drawn.settings.wrong:
        return None
    return rng.choice([pair for pair in drawn.pairs[talk.split] if pair[0] != talk.item])


def _wandering(history: str, drawn: TenantDraw, rng: random.Random) -> str:
    """Add talk about other items to the history: three quarters before it, a quarter after it."""
    detours = [
        rng.choice(drawn.world.detours).format(
            other=rng.choice(drawn.items), term=rng.choice(list(drawn.world.aspects))
        )
        for _ in range(drawn.settings.detours)
    ]
    after = len(detours) // 4
    return "；".join([*detours[after:], history, *detours[:after]])


def _opening_history(talk: ConversationTraits, old: str, drawn: TenantDraw, rng: random.Random) -> str:
    """Build the history of a complete first question: an empty history, or a history about another item."""
    if rng.random() < 0.5:
        return ""
    return _history(talk._replace(item=talk.other, compares=False), old, drawn, rng)


def _history(talk: ConversationTraits, old: str, drawn: TenantDraw, rng: random.Random) -> str:
    world = drawn.world
    second_first = talk.compares and rng.random() < 0.3
    second = rng.choice(world.seconds) if talk.compares and not second_first else ""
    return rng.choice(world.histories_second_first if second_first else world.histories).format(
        item=talk.item,
        other=talk.other,
        second=second.format(other=talk.other),
        old=rng.choice(world.olds).format(term=old) if old else "",
    )
