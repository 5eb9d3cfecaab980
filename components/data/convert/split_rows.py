"""Assign each row to a split, or leave it out with a reason. All functions are pure, with a seed for draws."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from components.data.convert.config import ConvertConfig
from qinglan.errors import DataError
from qinglan.rows.rows import Split
from qinglan.rows.splits import Conversation, hash_fraction, split_of
from qinglan.text.near_duplicates import shingles, similarity
from qinglan.text.same_tasks import TaskIndex

LeftOutReason = Literal["near_duplicate", "balance"]

LEAST_DEV = 2
"""Smallest number of dev conversations in a fold. One would not be enough, since it may have no row for SFT."""


class SplitInput(NamedTuple):
    """Fields of a row that decide its split."""

    number: int
    id: str
    conversation: Conversation
    sheet_split: Split | None
    question: str

    complete: bool = False
    """True if the question is known to have the same meaning after any history."""

    accepted: bool = True
    """True if SFT may learn from the row. It does not change the split."""


class SplitAssignment(NamedTuple):
    """Split of a row, or the reason why the row is left out. `detail` explains the reason with figures."""

    split: Split | None
    reason: LeftOutReason | None = None
    detail: str = ""


def assign_splits(rows: Sequence[SplitInput], config: ConvertConfig) -> list[SplitAssignment]:
    splits = conversation_splits(rows, config)
    assigned = [SplitAssignment(splits[row.conversation]) for row in rows]
    for index, detail in near_duplicates(rows, [splits[row.conversation] for row in rows], config.near_duplicate):
        assigned[index] = SplitAssignment(None, "near_duplicate", detail)
    training = [
        row.conversation for row, assignment in zip(rows, assigned, strict=True) if assignment.split == "train"
    ]
    unbalanced = left_out_for_balance(training, config.tenant_ratio, config.seed)
    sizes = Counter(tenant for tenant, _ in training)
    smallest = min(sizes, key=sizes.__getitem__, default="")
    for index, row in enumerate(rows):
        if assigned[index].split == "train" and row.conversation in unbalanced:
            tenant = row.conversation[0]
            detail = (
                f"{tenant} has {sizes[tenant]:,} training rows, {smallest} {sizes[smallest]:,}: "
                f"at most {config.tenant_ratio:g} times as many"
            )
            assigned[index] = SplitAssignment(None, "balance", detail)
    return assigned


def conversation_splits(rows: Sequence[SplitInput], config: ConvertConfig) -> dict[Conversation, Split]:
    """Return each conversation's split: the split in the sheet's split column or, if it is empty, a drawn split."""
    assigned: dict[Conversation, Split] = {}
    for row in rows:
        if row.sheet_split and assigned.setdefault(row.conversation, row.sheet_split) != row.sheet_split:
            raise DataError(
                f"row {row.number}: conversation {row.conversation[1]!r} is in {assigned[row.conversation]!r} and in "
                f"{row.sheet_split!r}. Turns of one conversation stay together: mend the sheet's split column."
            )
    conversations = dict.fromkeys(row.conversation for row in rows)
    return divide({name: assigned.get(name) for name in conversations}, config)


def divide(marks: Mapping[Conversation, Split | None], config: ConvertConfig) -> dict[Conversation, Split]:
    """Return the split of each conversation. A split that the sheet marks is kept; the others are assigned here.

    Without folds, a hash of the conversation decides. With folds, the unmarked conversations are shuffled by the seed
    and divided into folds of equal size, and fold number `fold` is the test. Unless the sheet marks dev rows, dev is
    taken at even intervals from the other conversations; the rest is train.
    """
    if not config.folds:
        return {name: mark or split_of(name, config) for name, mark in marks.items()}
    order = sorted((name for name, mark in marks.items() if not mark), key=lambda c: hash_fraction(c, config.seed))
    held_out = {name for position, name in enumerate(order) if position % config.folds == config.fold - 1}
    rest = [name for name in order if name not in held_out]
    share = config.dev / (config.train + config.dev) if config.dev else 0.0
    count = 0 if "dev" in marks.values() or not share else max(LEAST_DEV, round(share * len(rest)))
    # dev is taken evenly from the whole order. If it were the beginning, all folds would have much the same dev.
    dev = {rest[at * len(rest) // count] for at in range(count)} if rest else set[Conversation]()
    drawn: dict[Conversation, Split] = {name: "dev" if name in dev else "train" for name in rest}
    drawn |= dict.fromkeys(held_out, "test")
    return {name: mark or drawn[name] for name, mark in marks.items()}


def near_duplicates(rows: Sequence[SplitInput], splits: Sequence[Split], threshold: float) -> list[tuple[int, str]]:
    """Find rows of train that repeat a row of dev or test, and rows of dev that repeat a row of test.

    Returns the position of each such row, and a text about the row that it repeats. No test row is left out.
    """
    similar: list[tuple[int, str]] = []
    for split, before in (("dev", {"test"}), ("train", {"test", "dev"})):
        held = {row.question: (row.id, where) for row, where in zip(rows, splits, strict=True) if where in before}
        complete = {row.question for row in rows if row.complete}
        known = TaskIndex(held, threshold, complete)
        for index, row in enumerate(rows):
            if splits[index] == split and (alike := known.alike(row.question)):
                similar.append((index, _likeness(row.question, alike[0], *held[alike[0]], threshold)))
    return similar


def _likeness(question: str, other: str, row_id: str, split: Split, threshold: float) -> str:
    share = similarity(shingles(question), shingles(other))
    note = "" if share >= threshold else ", the same question with its history told otherwise"
    return f"{share:.2f} alike to row {row_id} of the {split} split{note}"


def left_out_for_balance(training: Sequence[Conversation], ratio: float, seed: int) -> set[Conversation]:
    """Choose conversations to leave out, so that no tenant has more than `ratio` times the rows of the smallest
    tenant.

    `training` names a conversation once per row. Whole conversations are left out, drawn by the seed.
    """
    rows = Counter(training)
    by_tenant: dict[str, list[Conversation]] = defaultdict(list)
    for conversation in rows:
        by_tenant[conversation[0]].append(conversation)
    limit = ratio * min(Counter(tenant for tenant, _ in training).values(), default=0)
    left_out: set[Conversation] = set()
    for conversations in by_tenant.values():
        used = 0
        for conversation in sorted(conversations, key=lambda c: hash_fraction(c, seed + 1)):
            if used + rows[conversation] > limit:
                left_out.add(conversation)
            else:
                used += rows[conversation]
    return left_out
