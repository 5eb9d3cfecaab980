"""Checks of a written rewrite, whoever wrote it: if one fails, the user's own question is searched.

    hits(question, written)     ("invented_number",)      the guards that it does not pass, the gravest first

A pure function of the question, what is known with it, and the text: serving falls back by it, and an evaluation can
count by it. It knows no model and no knowledge base, so it says what a text surely is, not whether it is good.
"""

from collections.abc import Sequence

from qinglan.numerals import all_numbers, written_numbers
from qinglan.prompts import PromptInput
from qinglan.text import MARKUP, is_copied, normalise, text_length

GUARDS = ("empty", "cut", "too_long", "markup", "history", "invented_number")
"""In the order in which they are told: a text that is cut is too long, too, and often a copy."""

MAX_CHARACTERS = 96
"""Chinese characters, or four letters each; a question that is longer may be answered by its own length.
`python -m benchmarks.guard` says what teachers take."""


def failed_guards(prompt_input: PromptInput, written: str, cut: bool = False) -> tuple[str, ...]:
    """The guards that the text does not pass; none where it may be searched. `cut`: its writer was stopped."""
    text = normalise(written)
    if not text:
        return ("empty",)
    sources = (prompt_input.history_summary, prompt_input.user_profile)
    failures = {
        "cut": cut,
        "too_long": text_length(written) > max(MAX_CHARACTERS, text_length(prompt_input.question)),
        "markup": any(match[0] not in prompt_input.question for match in MARKUP.finditer(written)),
        "history": is_copied(written, prompt_input.question, sources),
        "invented_number": bool(numbers_without_source(written, (prompt_input.question, *sources))),
    }
    return tuple(name for name in GUARDS if failures.get(name))


def numbers_without_source(written: str, sources: Sequence[str]) -> set[str]:
    """Its numbers that no source holds, in digits or spelled out."""
    known = {number for text in sources for number in all_numbers(text)}
    return written_numbers(written) - known
