"""The classifier's training data: token ids, and a target that is a distribution over the labels."""

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from components.training.style.config import StyleConfig
from qinglan.style.engines import pad
from qinglan.style.labels import Labels
from qinglan.style.rows import ANSWER, StyleRow


class StyleDataset:
    """Token ids and targets in the form that transformers' Trainer reads."""

    def __init__(self, ids: Sequence[Sequence[int]], targets: NDArray[np.float64]) -> None:
        self._ids, self.targets = ids, targets

    def __len__(self) -> int:
        return len(self._ids)

    def __getitem__(self, at: int) -> dict[str, Any]:
        return {"input_ids": self._ids[at], "labels": self.targets[at]}


class LabelledText(NamedTuple):
    text: str
    label: int


def labelled_texts(rows: Sequence[StyleRow], labels: Labels, config: StyleConfig) -> list[LabelledText]:
    """Return the training texts: every row, then some rows again without their answer. With sampling, rare labels are
    as frequent as the others."""
    rng = random.Random(config.seed)
    whole = [LabelledText(row.input, labels.ids[row.label]) for row in rows]
    if config.balance == "sampling":
        whole = oversampled(whole, rng)
    shortened = rng.sample(whole, round(len(whole) * config.answer_dropped))
    return whole + [LabelledText(without_answer(row.text), row.label) for row in shortened]


def oversampled(rows: Sequence[LabelledText], rng: random.Random) -> list[LabelledText]:
    """Repeat rows at random until each label is as frequent as the most frequent label."""
    by_label: dict[int, list[LabelledText]] = {}
    for row in rows:
        by_label.setdefault(row.label, []).append(row)
    most = max(map(len, by_label.values()))
    return [
        row
        for same_label in by_label.values()
        for row in (*same_label, *rng.choices(same_label, k=most - len(same_label)))
    ]


def without_answer(text: str) -> str:
    """Return the question in the training form, with an empty answer."""
    return text.partition(ANSWER)[0] + ANSWER


def one_hot(labels: Sequence[int], count: int, smoothing: float) -> NDArray[np.float64]:
    return np.eye(count)[list(labels)] * (1 - smoothing) + smoothing / count


def class_weights(labels: Sequence[int], count: int) -> list[float]:
    """Return a weight for each label, so that all labels have the same total weight and the mean over the rows is 1.
    A label without rows gets 0."""
    # n / (k n_l), as scikit-learn's class_weight="balanced", with k the labels that are present.
    rows = Counter(labels)
    present = len(rows)
    return [len(labels) / (present * rows[label]) if rows[label] else 0.0 for label in range(count)]


def collate(features: Sequence[dict[str, Any]], pad_token_id: int) -> dict[str, Any]:
    import torch

    ids, mask = pad([list(feature["input_ids"]) for feature in features], pad_token_id)
    targets = torch.tensor(np.array([feature["labels"] for feature in features]), dtype=torch.float32)
    return {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(mask), "labels": targets}
