"""Decides if a question is searched unchanged, because it finds its answer without a rewrite.

A rewrite could then only make the result worse, and would cost a call. The RAG service and the evaluation use the
same rule.
"""

AS_ASKED = 0.5
"""Lowest score of the unchanged question's first passage at which no rewrite is used. Scores are calibrated, so above
0.5 the passage is more likely right than wrong. docs/science.md says how this value was chosen."""


def searched_as_asked(first_score: float | None, threshold: float) -> bool:
    """True if the question's first passage, scored against the question itself, reaches the threshold.

    With a threshold of 0, or without a score, every question is rewritten.
    """
    return threshold > 0 and first_score is not None and first_score >= threshold
