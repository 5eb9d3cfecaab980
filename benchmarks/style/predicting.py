"""Many texts: batch_predict against the plan's predict_style, one by one and padded to 512, on the same weights."""

import math
import random
import statistics
import time
from collections.abc import Callable, Sequence
from statistics import NormalDist
from typing import Any, NamedTuple

from rich.table import Table

from benchmarks.style.material import Opened
from benchmarks.style.plan import MAX_LENGTH, predict_style
from qinglan.style.predict import Prediction, batch_predict

TEXTS = 200
ROUNDS = 3
SHORTEST, LONGEST = 20, 2000
"""Characters; the longest are beyond what the model reads."""

SPREAD = 1.2
"""Standard deviation of the logarithm of the characters, where lengths are those of messages."""

CLOSE = 1e-4
TARGET = 10.0
ANSWER = "\n回答："


class Lengths(NamedTuple):
    """In tokens."""

    shortest: int
    median: int
    mean: int
    longest: int
    cut: int
    """Texts beyond what the model reads."""


class Predicting(NamedTuple):
    """Texts a second, and how far the answers are from the plan's."""

    texts: str
    """How long they are."""

    product: float
    plan: float
    ratio: float
    difference: float
    same_labels: bool
    lengths: Lengths

    @property
    def agrees(self) -> bool:
        return self.difference <= CLOSE and self.same_labels


def measure(opened: Opened, texts: Sequence[str]) -> list[Predicting]:
    """Three mixtures of lengths made of these texts; the first is the one that counts."""
    rng = random.Random(0)
    middle = statistics.median(map(len, texts))
    messages = [of_length(texts, entry, rng) for entry in like_messages(TEXTS, middle)]
    even = [of_length(texts, entry, rng) for entry in evenly(TEXTS)]
    return [
        measure_one(f"log-normal, median {middle:.0f} characters", opened, messages),
        measure_one("log-uniform: as many of 20 to 60 as of 600 to 1,800", opened, even),
        measure_one("the sample's, none of them long", opened, texts[:TEXTS]),
    ]


def measure_one(name: str, opened: Opened, texts: Sequence[str]) -> Predicting:
    """Both in turn, a few rounds; the ratio is the median of the rounds'."""
    product: list[Prediction] = []
    plan: list[Prediction] = []
    seconds = []
    for _ in range(ROUNDS):
        took, product = timed(lambda: batch_predict(texts, *opened))
        took_plan, plan = timed(lambda: [predict_style(text, *opened) for text in texts])
        seconds.append((took, took_plan))
    fast, slow = (round(len(texts) / statistics.median(side), 1) for side in zip(*seconds, strict=True))
    ratio = round(statistics.median(b / a for a, b in seconds), 2)
    return Predicting(name, fast, slow, ratio, *compared(product, plan), lengths(opened.tokenizer, texts))


def timed(call: Callable[[], list[Prediction]]) -> tuple[float, list[Prediction]]:
    started = time.perf_counter()
    answers = call()
    return time.perf_counter() - started, answers


def compared(product: Sequence[Prediction], plan: Sequence[Prediction]) -> tuple[float, bool]:
    """The largest difference of any probability, and whether every label is the same."""
    far, same = 0.0, True
    for answer, expected in zip(product, plan, strict=True):
        same = same and answer["predicted_label"] == expected["predicted_label"]
        far = max(
            far, *(abs(answer["probabilities"][name] - entry) for name, entry in expected["probabilities"].items())
        )
    return far, same


def like_messages(count: int, median: float) -> list[int]:
    """Lengths as people's messages have them: most near the median, few very long ones."""
    normal = NormalDist(math.log(median), SPREAD)
    drawn = (round(math.exp(normal.inv_cdf((at + 0.5) / count))) for at in range(count))
    return [min(max(entry, SHORTEST), LONGEST) for entry in drawn]


def evenly(count: int) -> list[int]:
    """Lengths of every magnitude alike."""
    return [round(SHORTEST * (LONGEST / SHORTEST) ** ((at + 0.5) / count)) for at in range(count)]


def of_length(texts: Sequence[str], characters: int, rng: random.Random) -> str:
    """A text with further answers joined to it, and cut where it is long enough."""
    text = rng.choice(texts)
    while len(text) < characters:
        text += rng.choice(texts).partition(ANSWER)[2]
    return text[:characters]


def lengths(tokenizer: Any, texts: Sequence[str]) -> Lengths:
    tokens = [len(ids) for ids in tokenizer(list(texts)).input_ids]
    cut = sum(entry > MAX_LENGTH for entry in tokens)
    return Lengths(
        min(tokens), round(statistics.median(tokens)), round(statistics.mean(tokens)), max(tokens), cut
    )  # fmt: skip


def table(results: Sequence[Predicting]) -> Table:
    out = Table(
        "lengths", "tokens", "batch_predict", "the plan's loop", "ratio", "largest difference",
        title=f"texts a second, {TEXTS} texts",
    )  # fmt: skip
    for entry in results:
        tokens = (
            f"{entry.lengths.shortest} to {entry.lengths.longest}, mean {entry.lengths.mean}, {entry.lengths.cut} cut"
        )
        out.add_row(
            entry.texts,
            tokens,
            f"{entry.product:,.0f}",
            f"{entry.plan:,.0f}",
            f"{entry.ratio:.1f}",
            f"{entry.difference:.0e}",
        )
    return out
