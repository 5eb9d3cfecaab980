"""What becomes of each row: who learns, who chooses, who is locked away. Pure functions of rows and a seed."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from components.data.convert.config import ConvertConfig
from qinglan.duplicates import Known
from qinglan.errors import DataError
from qinglan.rows import Split

Conversation = tuple[str, str]
"""Tenant and conversation id: two tenants may number theirs alike."""

Fate = Split | Literal["near_duplicates", "left_out_for_balance"]


class Surveyed(NamedTuple):
    """What deciding needs of a row."""

    number: int
    conversation: Conversation
    given: Split | None
    asked: str


def decide(rows: Sequence[Surveyed], config: ConvertConfig) -> list[Fate]:
    """Each row's split, or why it is in none."""
    splits = split_all(rows, config)
    fates: list[Fate] = [splits[row.conversation] for row in rows]
    for index in near_duplicates(rows, fates, config.near_duplicate):
        fates[index] = "near_duplicates"
    training = [row.conversation for row, fate in zip(rows, fates, strict=True) if fate == "train"]
    unbalanced = left_out_for_balance(training, config.tenant_ratio, config.seed)
    return [
        "left_out_for_balance" if fate == "train" and row.conversation in unbalanced else fate
        for row, fate in zip(rows, fates, strict=True)
    ]


def split_all(rows: Sequence[Surveyed], config: ConvertConfig) -> dict[Conversation, Split]:
    """Each conversation's split: the sheet's where it names one, else by its own hash."""
    given: dict[Conversation, Split] = {}
    for row in rows:
        if row.given and given.setdefault(row.conversation, row.given) != row.given:
            raise DataError(
                f"row {row.number}: conversation {row.conversation[1]!r} is in {given[row.conversation]!r} and in "
                f"{row.given!r}. Turns of one conversation stay together: mend the sheet's split column."
            )
    return {row.conversation: given.get(row.conversation) or split_of(row.conversation, config) for row in rows}


def near_duplicates(rows: Sequence[Surveyed], fates: Sequence[Fate], threshold: float) -> list[int]:
    """Rows of train that stand in dev or test too, and of dev that stand in test: the test stays whole."""
    out: list[int] = []
    for split, before in (("dev", {"test"}), ("train", {"test", "dev"})):
        known = Known((row.asked for row, fate in zip(rows, fates, strict=True) if fate in before), threshold)
        out += [at for at, fate in enumerate(fates) if fate == split and known.alike(rows[at].asked)]
    return out


def split_of(conversation: Conversation, config: ConvertConfig) -> Split:
    """Name the split of a conversation; the answer never depends on the other rows."""
    place = _place(conversation, config.seed)
    if place < config.train:
        return "train"
    return "dev" if place < config.train + config.dev else "test"


def _place(conversation: Conversation, seed: int) -> float:
    """A conversation's own point in [0, 1)."""
    text = "\x1f".join((str(seed), *conversation))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") / 2**64


def left_out_for_balance(training: Iterable[Conversation], ratio: float, seed: int) -> set[Conversation]:
    """The conversations whose rows would make one tenant outweigh the smallest by more than `ratio`.

    `training` names a conversation once per row. Whole conversations go, chosen by the seed alone.
    """
    rows = Counter(training)
    by_tenant: dict[str, list[Conversation]] = defaultdict(list)
    for conversation in rows:
        by_tenant[conversation[0]].append(conversation)
    sizes = {tenant: sum(rows[c] for c in those) for tenant, those in by_tenant.items()}
    limit = ratio * min(sizes.values(), default=0)
    out: set[Conversation] = set()
    for those in by_tenant.values():
        kept = 0
        for conversation in sorted(those, key=lambda c: _place(c, seed + 1)):
            if kept + rows[conversation] > limit:
                out.add(conversation)
            else:
                kept += rows[conversation]
    return out
