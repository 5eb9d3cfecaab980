"""Which texts are nearly the same: their rows are no independent evidence."""

from collections.abc import Sequence

import numpy as np

from qinglan.statistics import Groups
from qinglan.text import bigrams, normalise

CHUNK = 500
"""Texts compared with all others at once: what bounds memory."""


def groups_of_alike(texts: Sequence[str], share: float) -> Groups:
    """A number for each text; two share theirs when a chain of near-duplicates joins them.

    Near-duplicates have at least `share` of all their character pairs in common (Jaccard).
    """
    from scipy.sparse import coo_matrix, vstack  # type: ignore[import-untyped]
    from scipy.sparse.csgraph import connected_components  # type: ignore[import-untyped]
    from sklearn.feature_extraction.text import CountVectorizer

    pairs = CountVectorizer(analyzer=_pairs, binary=True, dtype=np.float32).fit_transform(texts).tocsr()
    sizes = np.asarray(pairs.sum(axis=1)).ravel()
    found = []
    for start in range(0, len(texts), CHUNK):
        shared = (pairs[start : start + CHUNK] @ pairs.T).tocoo()
        union = sizes[start + shared.row] + sizes[shared.col] - shared.data
        near = shared.data >= share * union - 1e-6
        ones, shape = np.ones(int(near.sum()), dtype=np.int8), shared.shape
        found.append(coo_matrix((ones, (shared.row[near], shared.col[near])), shape=shape))
    _, groups = connected_components(vstack(found), directed=False)
    return np.asarray(groups, dtype=np.int64)


def _pairs(text: str) -> list[str]:
    """Never none: a text of punctuation is alike to its own kind alone."""
    return bigrams(normalise(text)) or [text]
