"""What a large model brings along, in small: here from the knowledge base's text alone.

Two kinds of text: the passages as they are, and headings to find: something that a passage says and a mention of
its subject go in, the passage's heading comes out. No conversation, no teacher and no gold label takes part.
"""

import random
import re
from collections.abc import Sequence
from typing import NamedTuple

from qinglan.prompts import Message, student_messages
from qinglan.rag.contract import Passage

CLAUSES = re.compile(r"[。；，：]")
ROUNDS = 3
"""How often each passage asks for its heading."""

BLANK = 0.15
"""Share of the questions that say nothing, so that the model stays undecided where it cannot know."""

HEADINGS = 0.6
"""Share of the answers that are the heading; the others repeat subject and clause."""

LONGEST_QUESTION = 14


class Text(NamedTuple):
    """Something to learn: the loss is on the answer."""

    prompt: tuple[Message, ...]
    answer: str


class Asked(NamedTuple):
    tenant_id: str
    question: str
    user_profile: str
    history_summary: str


def corpus(tenant: str, passages: Sequence[Passage], seed: int) -> list[Text]:
    rng = random.Random(seed)
    letters = sorted({letter for passage in passages for letter in passage.content if letter.isalpha()})
    texts = [Text((), f"{passage.title}。{passage.content}") for passage in passages]
    for _ in range(ROUNDS):
        texts += [text for passage in passages if (text := _question(tenant, passage, letters, rng))]
    return texts


def _question(tenant: str, passage: Passage, letters: list[str], rng: random.Random) -> Text | None:
    clauses = [clause for clause in CLAUSES.split(passage.content) if len(clause) > 2]
    if not clauses or not passage.title:
        return None
    subject = passage.title.split(" ")[0]
    said = rng.choice(clauses)
    said = said.replace(subject, "")[-LONGEST_QUESTION:] or said
    if rng.random() < BLANK:
        said = "".join(rng.sample(letters, min(len(letters), rng.randint(3, 8))))
    around = [rng.choice(clauses)[:6] for _ in range(2)]
    mention = rng.choice(["{subject}", "{0}，{subject}", "{subject}，{1}", "{0}{subject}{1}"])
    history = mention.format(*around, subject=subject)
    answer = passage.title if rng.random() < HEADINGS else f"{subject} {said}"
    asked = Asked(tenant, said, rng.choice(clauses)[:8], history)
    return Text(tuple(student_messages(asked)), answer)
