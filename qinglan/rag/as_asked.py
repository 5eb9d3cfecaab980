"""Decides if a question is searched unchanged, without a rewrite: it is, if the question already finds its answer.

A rewrite could then only make the result worse, and would cost a call. The RAG service and the evaluation use the
same rule.
"""

AS_ASKED = 0.5
"""Score from which no rewrite is used: the score of the first passage that the question itself retrieves. Scores are
calibrated, so above 0.5 the passage is more likely right than wrong. How it was chosen: docs/science.md."""


def searched_as_asked(first_score: float | None, threshold: float) -> bool:
    """True if the question's first passage, scored against the question itself, reaches the threshold.

    With a threshold of 0, or without a score, every question is rewritten.
    """
    return threshold > 0 and first_score is not None and first_score >= threshold
