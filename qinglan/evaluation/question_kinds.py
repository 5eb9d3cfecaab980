"""Classify questions without labels, by the question, its need, retrieval scores and the training questions.

known = training_terms(questions)
question_kinds(row, known)      # ("in pieces", "house words")
"""

from collections.abc import Collection, Iterable

from qinglan.rows.rows import ValidatedRewrite
from qinglan.text.text import search_terms

COMPLETE, IN_PIECES, HOUSE_WORDS, RARE_WORDS = "complete", "in pieces", "house words", "rare words"
KINDS = {
    COMPLETE: "complete: it holds all that its need says",
    IN_PIECES: "in pieces: it leaves to the history what it is about",
    HOUSE_WORDS: "house words: no passage found scores half against its need, the house says it otherwise",
    RARE_WORDS: "rare words: more than a third of its terms stand in no training question",
}
"""Meaning of each kind. A question is of exactly one of the first two kinds, and may also be of the last two."""

MISSING_TERMS = 0.1
"""Largest share of the need's terms, for example particles, that a complete question may lack."""

UNMATCHED_SCORE = 0.5
RARE_TERMS = 1 / 3


def training_terms(questions: Iterable[str]) -> set[str]:
    """Return the terms of all questions that a model learned from."""
    return {term for question in questions for term in search_terms(question)}


def question_kinds(row: ValidatedRewrite, known_terms: Collection[str]) -> tuple[str, ...]:
    """Return the kinds of a question, by facts that are known before a student rewrites it."""
    terms = set(search_terms(row.question))
    kinds = [COMPLETE if is_complete(row.question, row.need) else IN_PIECES]
    scores = [hit.reranker_score for retrieval in (row.plain, row.rewritten) for hit in retrieval.hits]
    if row.scored_against == "need" and max(scores, default=0.0) < UNMATCHED_SCORE:
        kinds.append(HOUSE_WORDS)
    if sum(term not in known_terms for term in terms) > RARE_TERMS * len(terms):
        kinds.append(RARE_WORDS)
    return tuple(kinds)


def is_complete(question: str, need: str) -> bool:
    """Return True if a question holds nearly all terms of its need, so that it means the same after any history."""
    needed = set(search_terms(need))
    return len(needed - set(search_terms(question))) <= MISSING_TERMS * len(needed)
