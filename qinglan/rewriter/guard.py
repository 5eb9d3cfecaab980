"""Checks of a rewrite. If one fails, serving searches with the user's own question instead.

    failed_guards(question, written)     ("invented_number",)      the failed guards, the gravest first

This is a pure function of question, history, profile and rewrite, for serving and evaluation. It uses no model and no
knowledge base, so it finds certain faults only, and does not measure quality.
"""

from collections.abc import Sequence

from qinglan.prompts import PromptInput
from qinglan.text.quantities import numbers_without_source
from qinglan.text.text import MARKUP, copied_tokens, is_blank, normalise, text_length, text_tokens, token_length

GUARDS = ("empty", "cut", "too_long", "markup", "history", "invented_number")
"""Names of the guards, the gravest first, because a text that was cut is often also too long and a copy."""

MAX_CHARACTERS = 96
"""Largest number of characters of a rewrite, unless the question is longer; four Latin letters count as one Chinese
character. `python -m benchmarks.guard` measures the lengths of teachers' rewrites."""

LONGEST_CLAUSE = 24
"""Length of a part copied from the history at which the guard `history` fails, in characters as for MAX_CHARACTERS.
People write shorter copies in addition to the question ("Besides winning the Grand Prix, did he ..."). `python -m
benchmarks.guard` measured this and QUESTION_KEPT on people's rewrites."""

QUESTION_KEPT = 0.5
"""Lowest share of the question's words that a rewrite must have in addition to a shorter copy of the history."""


def failed_guards(prompt_input: PromptInput, written: str, cut: bool = False) -> tuple[str, ...]:
    """Return the names of the guards that the text fails; empty if it may be searched. `cut` means that the model was
    stopped at its token limit."""
    text = normalise(written)
    if not text or is_blank(written):
        return ("empty",)
    sources = (prompt_input.history_summary, prompt_input.user_profile)
    failures = {
        "cut": cut,
        "too_long": text_length(written) > max(MAX_CHARACTERS, text_length(prompt_input.question)),
        "markup": any(match[0] not in prompt_input.question for match in MARKUP.finditer(written)),
        "history": copies_history(written, prompt_input.question, sources),
        "invented_number": bool(numbers_without_source(written, (prompt_input.question, *sources))),
    }
    return tuple(name for name in GUARDS if failures.get(name))


def copies_history(written: str, question: str, sources: Sequence[str]) -> bool:
    """True if the text copies a long part of the sources, or if it copies a shorter part and has too few of the
    question's words outside of it."""
    tokens, question_tokens = text_tokens(written), set(text_tokens(question))
    copied = copied_tokens(written, (question,), sources)
    length = sum(token_length(token) for token, copy in zip(tokens, copied, strict=True) if copy)
    if not 0 < length < LONGEST_CLAUSE:
        return length > 0
    rest = {token for token, copy in zip(tokens, copied, strict=True) if not copy}
    return len(question_tokens & rest) < QUESTION_KEPT * len(question_tokens)
