"""Checks of a written rewrite, whoever wrote it: if one fails, the user's own question is searched.

    failed_guards(question, written)     ("invented_number",)      the guards that it does not pass, the gravest first

A pure function of the question, its history and profile, and the text: serving falls back by it, and an evaluation
can count by it. It uses no model and no knowledge base, so it finds certain faults only, and does not tell how good a
text is.
"""

from collections.abc import Sequence

from qinglan.prompts import PromptInput
from qinglan.text.quantities import numbers_without_source
from qinglan.text.text import MARKUP, copied_tokens, is_blank, normalise, text_length, text_tokens, token_length

GUARDS = ("empty", "cut", "too_long", "markup", "history", "invented_number")
"""The gravest first, as they are reported: a text that is cut is often too long and a copy as well."""

MAX_CHARACTERS = 96
"""Chinese characters, or four letters each; a question that is longer may be answered by its own length.
`python -m benchmarks.guard` says what teachers take."""


LONGEST_CLAUSE = 24
"""Length from which a copy of the history fails, whatever stands beside it. People write shorter ones beside the
question ("Besides winning the Grand Prix, did he ..."): measured on their rewrites by `python -m benchmarks.guard`,
as is QUESTION_KEPT."""

QUESTION_KEPT = 0.5
"""Share of the question's words that must stand beside a shorter copy."""


def failed_guards(prompt_input: PromptInput, written: str, cut: bool = False) -> tuple[str, ...]:
    """The guards that the text does not pass; none where it may be searched. `cut`: its writer was stopped."""
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
    """True for a long stretch of a source, unless it is a clause beside the question's own words."""
    tokens, question_tokens = text_tokens(written), set(text_tokens(question))
    copied = copied_tokens(written, (question,), sources)
    length = sum(token_length(token) for token, copy in zip(tokens, copied, strict=True) if copy)
    if not 0 < length < LONGEST_CLAUSE:
        return length > 0
    rest = {token for token, copy in zip(tokens, copied, strict=True) if not copy}
    return len(question_tokens & rest) < QUESTION_KEPT * len(question_tokens)
