"""A small substitute for a large model's knowledge: texts made from the knowledge base alone.

Two kinds of text: the passages as they are, and headings to find: something that a passage says and a mention of
its subject go in, the passage's heading comes out. No conversation, no teacher and no gold label takes part.
"""

import random
import re
from collections.abc import Sequence
from typing import NamedTuple

from qinglan.prompts import Message, Question, student_messages
from qinglan.rag.contract import Passage

CLAUSES = re.compile(r"[。；，：]")
ROUNDS = 3
"""Number of questions for a heading made from each passage."""

BLANK = 0.15
"""Share of questions without content, so that the model stays undecided where it cannot know."""

HEADINGS = 0.6
"""Share of the answers that are the heading; the others repeat subject and clause."""

COMPLETE = 0.15
"""Share of questions that are a heading already, in a conversation about something else: nothing to change."""

LONGEST_QUESTION = 14


class TrainingText(NamedTuple):
    """A text to learn; the loss is on the answer."""

    prompt: tuple[Message, ...]
    answer: str


def build_corpus(system_prompt: str, passages: Sequence[Passage], seed: int) -> list[TrainingText]:
    """Passages and headings to find, each question under the system prompt that training and serving show."""
    rng = random.Random(seed)
    letters = sorted({letter for passage in passages for letter in passage.content if letter.isalpha()})
    texts = [TrainingText((), f"{passage.title}。{passage.content}") for passage in passages]
    for _ in range(ROUNDS):
        for passage in passages:
            clauses = [clause for clause in CLAUSES.split(passage.content) if len(clause) > 2]
            if not clauses or not passage.title:
                continue
            if rng.random() < COMPLETE:
                texts.append(_complete(system_prompt, passage, rng.choice(passages), clauses, rng))
            else:
                texts.append(_elliptic(system_prompt, passage, clauses, letters, rng))
    return texts


def _elliptic(
    system_prompt: str, passage: Passage, clauses: list[str], letters: list[str], rng: random.Random
) -> TrainingText:
    """What a passage says without its subject, and talk of the subject."""
    subject = _subject(passage)
    fragment = rng.choice(clauses)
    fragment = fragment.replace(subject, "")[-LONGEST_QUESTION:] or fragment
    if rng.random() < BLANK:
        fragment = "".join(rng.sample(letters, min(len(letters), rng.randint(3, 8))))
    answer = passage.title if rng.random() < HEADINGS else f"{subject} {fragment}"
    question = Question("", fragment, rng.choice(clauses)[:8], _talk(subject, clauses, rng))
    return TrainingText(tuple(student_messages(question, system_prompt)), answer)


def _complete(
    system_prompt: str, passage: Passage, other: Passage, clauses: list[str], rng: random.Random
) -> TrainingText:
    """A heading as the question, and talk of another subject, or none."""
    history = _talk(_subject(other), clauses, rng) if rng.random() < 0.5 else ""
    question = Question("", passage.title, rng.choice(clauses)[:8], history)
    return TrainingText(tuple(student_messages(question, system_prompt)), passage.title)


def _talk(subject: str, clauses: list[str], rng: random.Random) -> str:
    around = [rng.choice(clauses)[:6] for _ in range(2)]
    mention = rng.choice(["{subject}", "{0}，{subject}", "{subject}，{1}", "{0}{subject}{1}"])
    return mention.format(*around, subject=subject)


def _subject(passage: Passage) -> str:
    return passage.title.split(" ")[0]
