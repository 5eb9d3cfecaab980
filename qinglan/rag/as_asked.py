"""The rule for a question that finds its answer by itself: it is searched as it was asked, and nobody rewrites it.

A rewrite can only lose there, and costs a call. The RAG service and the evaluation of a rewriter ask the same rule.
"""

AS_ASKED = 0.9
"""The score of a question's own first passage from which on. Scores are calibrated: nine of ten such are right."""


def searched_as_asked(first_score: float | None, threshold: float) -> bool:
    """True where the question's first passage, scored against the question itself, answers it surely enough.

    A threshold of 0 has every question rewritten; without a score nobody knows.
    """
    return threshold > 0 and first_score is not None and first_score >= threshold
