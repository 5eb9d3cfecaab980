"""Which split each row is in, or why it is in none. Pure functions of rows and a seed."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from components.data.convert.config import ConvertConfig
from qinglan.errors import DataError
from qinglan.near_duplicates import NearDuplicateIndex, shingles, similarity
from qinglan.rows import Split

Conversation = tuple[str, str]
"""Tenant and conversation id: two tenants may number theirs alike."""

LeftOutReason = Literal["near_duplicate", "balance"]


class SplitInput(NamedTuple):
    """The fields of a row that decide its split."""

    number: int
    id: str
    conversation: Conversation
    sheet_split: Split | None
    question: str


class SplitAssignment(NamedTuple):
    """A row's split, or the reason why it is in none, with the figures."""

    split: Split | None
    reason: LeftOutReason | None = None
    detail: str = ""


def assign_splits(rows: Sequence[SplitInput], config: ConvertConfig) -> list[SplitAssignment]:
    """The rows' splits, in their order."""
    splits = conversation_splits(rows, config)
    assigned = [SplitAssignment(splits[row.conversation]) for row in rows]
    for index, detail in near_duplicates(rows, [splits[row.conversation] for row in rows], config.near_duplicate):
        assigned[index] = SplitAssignment(None, "near_duplicate", detail)
    training = [
        row.conversation for row, assignment in zip(rows, assigned, strict=True) if assignment.split == "train"
    ]
    unbalanced = left_out_for_balance(training, config.tenant_ratio, config.seed)
    details = balance_details(training, config.tenant_ratio)
    return [
        SplitAssignment(None, "balance", details[row.conversation[0]])
        if assignment.split == "train" and row.conversation in unbalanced
        else assignment
        for row, assignment in zip(rows, assigned, strict=True)
    ]


def conversation_splits(rows: Sequence[SplitInput], config: ConvertConfig) -> dict[Conversation, Split]:
    """Each conversation's split: the sheet's where it names one, else by its own hash."""
    assigned: dict[Conversation, Split] = {}
    for row in rows:
        if row.sheet_split and assigned.setdefault(row.conversation, row.sheet_split) != row.sheet_split:
            raise DataError(
                f"row {row.number}: conversation {row.conversation[1]!r} is in {assigned[row.conversation]!r} and in "
                f"{row.sheet_split!r}. Turns of one conversation stay together: mend the sheet's split column."
            )
    return {row.conversation: assigned.get(row.conversation) or split_of(row.conversation, config) for row in rows}


def near_duplicates(rows: Sequence[SplitInput], splits: Sequence[Split], threshold: float) -> list[tuple[int, str]]:
    """Rows of train that stand in dev or test too, and of dev that stand in test, each with the row that it repeats.

    The test stays whole.
    """
    similar: list[tuple[int, str]] = []
    for split, before in (("dev", {"test"}), ("train", {"test", "dev"})):
        held = {row.question: (row.id, where) for row, where in zip(rows, splits, strict=True) if where in before}
        known = NearDuplicateIndex(held, threshold)
        for index, row in enumerate(rows):
            if splits[index] == split and (alike := known.alike(row.question)):
                similar.append((index, _likeness(row.question, alike[0], *held[alike[0]])))
    return similar


def _likeness(question: str, other: str, row_id: str, split: Split) -> str:
    share = similarity(shingles(question), shingles(other))
    return f"{share:.2f} alike to row {row_id} of the {split} split"


def split_of(conversation: Conversation, config: ConvertConfig) -> Split:
    """Name the split of a conversation; the answer never depends on the other rows."""
    position = _hash_fraction(conversation, config.seed)
    if position < config.train:
        return "train"
    return "dev" if position < config.train + config.dev else "test"


def _hash_fraction(conversation: Conversation, seed: int) -> float:
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
    limit = ratio * min(_tenant_sizes(rows).values(), default=0)
    left_out: set[Conversation] = set()
    for conversations in by_tenant.values():
        used = 0
        for conversation in sorted(conversations, key=lambda c: _hash_fraction(c, seed + 1)):
            if used + rows[conversation] > limit:
                left_out.add(conversation)
            else:
                used += rows[conversation]
    return left_out


def balance_details(training: Iterable[Conversation], ratio: float) -> dict[str, str]:
    """The figures behind the balance, by tenant."""
    sizes = _tenant_sizes(Counter(training))
    smallest = min(sizes, key=lambda tenant: sizes[tenant], default="")
    return {
        tenant: f"{tenant} has {size:,} training rows, {smallest} {sizes[smallest]:,}: "
        f"at most {ratio:g} times as many"
        for tenant, size in sizes.items()
    }


def _tenant_sizes(rows: Counter[Conversation]) -> Counter[str]:
    sizes: Counter[str] = Counter()
    for (tenant, _), count in rows.items():
        sizes[tenant] += count
    return sizes
