"""No answer of the locked test was ever seen in training or selection: by content, and by the card's digests."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from qinglan.errors import DataError
from qinglan.files import sha256_file
from qinglan.style.model import StyleCard
from qinglan.style.rows import StyleRow
from qinglan.text import normalise

SHOWN = 5


def check(test: Iterable[StyleRow], others: Mapping[str, Sequence[StyleRow]]) -> int:
    """Compare the test with every row of train and dev, and count these. A DataError names what leaked.

    Width, case, punctuation and spaces do not count: a model could not tell such texts apart either.
    """
    known = {normalise(row.input): row.id for row in test}
    leaked = [
        f"test row {known[text]} is {part} row {row.id}"
        for part, rows in others.items()
        for row in rows
        if (text := normalise(row.input)) in known
    ]
    if leaked:
        more = f" and {len(leaked) - SHOWN} more" if len(leaked) > SHOWN else ""
        raise DataError(
            f"{len(leaked)} rows of the locked test were trained or selected on: {'; '.join(leaked[:SHOWN])}{more}. "
            "Their answers would flatter the model. Prepare the data again and train on what that writes."
        )
    return sum(map(len, others.values()))


def check_parents(card: StyleCard, model: Path, rows: Path) -> None:
    """The model learned from the very rows that the test was compared with."""
    for part in ("train", "dev"):
        named, path = card.parents.get(part, ""), rows / f"{part}.jsonl"
        # A card need not name what the model was selected on, but may not name another.
        if (named or part == "train") and named != sha256_file(path):
            raise DataError(
                f"{model}: its card names {part} rows {named[:12] or '(none)'}, and {path} is another file, so "
                "nobody can tell whether the test leaked. Evaluate with the rows it was trained on."
            )
