"""Decides when a question is searched as it was asked, without a rewrite: when it finds its answer by itself.

A rewrite could only make the result worse, and costs a call. The RAG service and the evaluation use the same rule.
"""

AS_ASKED = 0.5
"""Lowest score of the question's own first passage for a search without a rewrite. Scores are calibrated: above it
the passage is likelier right than wrong. How it was chosen: docs/science.md."""


def searched_as_asked(first_score: float | None, threshold: float) -> bool:
    """True if the question's first passage, scored against the question itself, reaches the threshold.

    With a threshold of 0, or without a score, every question is rewritten.
    """
    return threshold > 0 and first_score is not None and first_score >= threshold
