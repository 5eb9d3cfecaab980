"""A rewriter model's card, which is a file beside its weights. This module needs no torch.

    rewriter.json       RewriterCard: prompts, parents

read_card(Path("runs/.../files/rl_model")).system_prompts
"""

from pathlib import Path

import orjson

from qinglan.config import Config, Positive
from qinglan.documents import parse_json_mapping
from qinglan.errors import DataError
from qinglan.files.files import read_json_mapping, write_atomically
from qinglan.files.plain_files import read_plain
from qinglan.prompts import student_digest

CARD = "rewriter.json"
FURTHER_ROWS = "augment"
"""Name of the stage that adds the teacher's further rows, as in `RewriterCard.left_out`."""


class RewriterCard(Config):
    """Card of a rewriter model: how its weights were trained, and with which prompts and limits it is served."""

    stage: str
    """Stage that wrote the weights: base, sft, ppo."""

    system_prompts: dict[str, str] = {}
    """System prompts by tenant, with which the model was trained and is served."""

    prompts_sha256: str = ""
    """Digest of the prompts (`student_digest`), computed by the code that trained the model."""

    max_new_tokens: Positive = 64
    """Largest number of tokens of a rewrite; a longer rewrite is cut."""

    max_prompt_tokens: Positive | None = None
    """Largest number of tokens of a prompt in training, evaluation and serving. If a prompt is longer, the oldest
    turns of its history are left out. None in older cards: only the context then limits a prompt."""

    parents: dict[str, str] = {}
    """Digests of what the model was made from: base_model, sft_model, training rows."""

    left_out: tuple[str, ...] | None = None
    """Stages whose rows were left out of training, because the model finds more on the dev rows without them; None if
    no rows were left out."""

    @property
    def leaves_out_further_rows(self) -> bool:
        return FURTHER_ROWS in (self.left_out or ())

    def prompt_tokens(self, context: int) -> int:
        """Return the largest number of prompt tokens if prompt and rewrite together may have `context` tokens."""
        room = context - self.max_new_tokens
        return min(room, self.max_prompt_tokens or room)


def write_card(folder: Path, card: RewriterCard) -> None:
    write_atomically(folder / CARD, card_bytes(card))


def card_bytes(card: RewriterCard) -> bytes:
    """Encode the card as JSON, with the digest of its prompts as this code renders them."""
    card = card.model_copy(update={"prompts_sha256": student_digest(card.system_prompts)})
    return orjson.dumps(card.model_dump(mode="json", exclude_none=True), option=orjson.OPT_INDENT_2)


def read_card(folder: Path) -> RewriterCard:
    values = read_json_mapping(folder / CARD, "A rewriter model is written by the sft or ppo stage.")
    return RewriterCard.parse(values, str(folder / CARD))


def model_context(folder: Path) -> int:
    """Return the largest number of tokens that the model in this folder reads and writes together."""
    path = folder / "config.json"
    try:
        return int(parse_json_mapping(read_plain(path), str(path))["max_position_embeddings"])
    except (OSError, DataError, ValueError, LookupError, TypeError) as error:
        raise DataError(f"{path}: no whole model ({type(error).__name__}). Copy it again.") from error


def refuse_other_prompts(folder: Path, card: RewriterCard) -> None:
    """Raise a DataError if this code would show the model other prompts than it was trained with."""
    if not card.prompts_sha256:
        raise DataError(
            f"{folder / CARD}: it does not say with which prompts the model was trained (prompts_sha256). Somebody "
            "changed it, or the model is older than that field: train it again."
        )
    if card.prompts_sha256 != (expected := student_digest(card.system_prompts)):
        raise DataError(
            f"{folder / CARD}: the model was trained with prompts {card.prompts_sha256[:12]}, and this code shows it "
            f"{expected[:12]}. Serve it with the code of its release, or train it again."
        )
