"""Predicts the styles of texts in the form of the original plan, with any transformers model that classifies.

batch_predict(texts, model, tokenizer, id_to_label)     as in the plan, padded to each batch's longest instead of 512
predict_style(text, model, tokenizer, id_to_label)
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from qinglan.errors import DataError
from qinglan.style.engines import InferenceEngine, TokenIds, TorchEngine


class Prediction(TypedDict):
    """One prediction, in the form of the original plan."""

    predicted_label: str
    confidence: float
    probabilities: dict[str, float]


def predict_style(
    text: str, model: Any, tokenizer: Any, id_to_label: Mapping[str, str], max_length: int = 512
) -> Prediction:
    return batch_predict([text], model, tokenizer, id_to_label, max_length=max_length)[0]


def batch_predict(
    texts: Sequence[str],
    model: Any,
    tokenizer: Any,
    id_to_label: Mapping[str, str],
    batch_size: int = 32,
    max_length: int = 512,
) -> list[Prediction]:
    logits, ids = TorchEngine(model), encode(tokenizer, texts, max_length)
    names = [id_to_label[str(number)] for number in range(len(id_to_label))]
    return predictions(predict_probabilities(logits, ids, len(names), batch_size), names)


def predict_probabilities(
    logits: InferenceEngine, ids: Sequence[TokenIds], labels: int, batch_size: int
) -> NDArray[np.float64]:
    """Return a row of probabilities for each text, in the order of the texts. Texts of similar length share a
    batch."""
    out = np.zeros((len(ids), labels))
    for batch in batch_by_length(ids, batch_size, logits.most_tokens):
        out[batch] = softmax(logits([ids[at] for at in batch]))
    return out


def encode(tokenizer: Any, texts: Sequence[str], max_length: int) -> list[TokenIds]:
    """Return the token ids of each text, cut off at `max_length`. A DataError gives the number of an empty text."""
    for number, text in enumerate(texts):
        if not isinstance(text, str) or not text.strip():
            raise DataError(f"text {number + 1}: empty. Give 用户问题：… and 回答：… as in training.")
    if not texts:
        return []
    ids: list[TokenIds] = tokenizer(list(texts), truncation=True, max_length=max_length).input_ids
    return ids


def batch_by_length(ids: Sequence[TokenIds], batch_size: int, most_tokens: int) -> Iterator[list[int]]:
    """Divide the positions of texts into batches of similar length, so that little is padded. `most_tokens` limits
    the tokens of a batch that has several texts."""
    batch: list[int] = []
    for at in sorted(range(len(ids)), key=lambda at: len(ids[at])):
        if batch and (len(batch) == batch_size or (len(batch) + 1) * len(ids[at]) > most_tokens):
            yield batch
            batch = []
        batch.append(at)
    if batch:
        yield batch


def predictions(probabilities: NDArray[np.float64], names: Sequence[str]) -> list[Prediction]:
    out = list[Prediction]()
    for row in probabilities.tolist():
        best = max(range(len(row)), key=row.__getitem__)
        by_name = dict(zip(names, row, strict=True))
        out.append({"predicted_label": names[best], "confidence": row[best], "probabilities": by_name})
    return out


def softmax(logits: NDArray[Any]) -> NDArray[np.float64]:
    # Shifted by the largest logit, which cancels out and keeps exp from overflowing.
    raised = np.exp(logits.astype(np.float64) - logits.max(axis=-1, keepdims=True))
    return np.asarray(raised / raised.sum(axis=-1, keepdims=True))
