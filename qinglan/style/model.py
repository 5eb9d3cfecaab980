"""A style model's folder, and prediction with it for evaluation, command line and service.

model.safetensors, config.json, tokenizer files     as transformers loads them
label_mapping.json                                  its labels, in the form of the original plan
style.json                                          StyleCard
model.int8.onnx                                     the same model for a CPU, if it was exported
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import orjson
from numpy.typing import NDArray

from qinglan.config import Config, Positive
from qinglan.errors import DataError
from qinglan.files.files import read_json_mapping, write_atomically
from qinglan.models.references import refuse_foreign_files
from qinglan.models.whole_model import words_for_broken
from qinglan.style.engines import InferenceEngine, TokenIds
from qinglan.style.labels import Labels, read_mapping
from qinglan.style.predict import Prediction, encode, predict_probabilities, predictions

CARD_FILE = "style.json"
ONNX_FILE, TOKENIZER_FILE = "model.int8.onnx", "tokenizer.json"
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl", "*.pickle")

EngineName = Literal["torch", "onnx"]


class StyleCard(Config):
    """Card of a style model: facts that are stored with its weights."""

    stage: str
    """Stage that made the model: style or distil."""

    max_length: Positive = 512
    """Number of tokens of a text that are read; the rest is cut off, as in training."""

    temperature: float = 1.0
    """Temperature that was fitted on the dev rows. The weights are already divided by it."""

    parents: dict[str, str] = {}
    """Digests of the model's base or teacher, of its rows and of its labels."""

    cross_fitted: int = 0
    """Number of sibling models that were judged instead of this model, each on rows that it did not learn from; 0 if
    this model was judged on a locked test."""


def write_card(folder: Path, card: StyleCard) -> None:
    write_atomically(folder / CARD_FILE, orjson.dumps(card.model_dump(mode="json"), option=orjson.OPT_INDENT_2))


def read_card(folder: Path) -> StyleCard:
    values = read_json_mapping(folder / CARD_FILE, "A style model is written by the style or distil stage.")
    return StyleCard.parse(values, str(folder / CARD_FILE))


class StyleModel:
    """A trained classifier in memory."""

    def __init__(self, logits: InferenceEngine, tokenizer: Any, labels: Labels, card: StyleCard) -> None:
        self.logits, self.tokenizer, self.labels, self.card = logits, tokenizer, labels, card

    @classmethod
    def load(cls, folder: Path, engine: EngineName = "torch") -> "StyleModel":
        """Load the folder's safetensors or ONNX file. A folder with a pickle is refused, since a pickle could run
        code."""
        from qinglan.style.engines import open_onnx, open_torch

        card, labels = read_card(folder), read_mapping(folder)
        refuse_pickles(folder)
        refuse_foreign_files(folder, weights=engine == "torch")
        if not (folder / TOKENIZER_FILE).is_file():  # transformers would make an empty tokenizer
            raise DataError(
                f"{folder}: no {TOKENIZER_FILE}, so no whole model. Copy it again from where it was trained."
            )
        count = len(labels.labels)
        logits = open_onnx(folder / ONNX_FILE, count) if engine == "onnx" else open_torch(folder, count)
        with words_for_broken(folder):
            tokenizer = load_tokenizer(folder)
        return cls(logits, tokenizer, labels, card)

    def encode(self, texts: Sequence[str]) -> list[TokenIds]:
        return encode(self.tokenizer, texts, self.card.max_length)

    def probabilities_of(self, ids: Sequence[TokenIds], batch_size: int = 32) -> NDArray[np.float64]:
        """Return a row of probabilities for each text, in the order of the texts. Texts of similar length share a
        batch."""
        return predict_probabilities(self.logits, ids, len(self.labels.labels), batch_size)

    def probabilities(self, texts: Sequence[str], batch_size: int = 32) -> NDArray[np.float64]:
        return self.probabilities_of(self.encode(texts), batch_size)

    def predict(self, texts: Sequence[str], batch_size: int = 32) -> list[Prediction]:
        """Return predictions in the form of the original plan: predicted_label, confidence, probabilities."""
        return predictions(self.probabilities(texts, batch_size), self.labels.names)


def load_tokenizer(folder: Path) -> Any:
    """Load the tokenizer for training and prediction. Control tokens in a text, such as [SEP], are read as plain
    text."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder, local_files_only=True, split_special_tokens=True)


def refuse_pickles(folder: Path) -> None:
    if pickles := sorted(path.name for pattern in PICKLES for path in folder.glob(pattern)):
        raise DataError(
            f"{folder}: holds {pickles[0]}, a pickle, which could run code when it is loaded. Save the model with "
            "safe_serialization, as .safetensors, and remove that file."
        )
