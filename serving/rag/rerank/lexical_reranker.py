"""Local reranker: scores a text and a passage by the probability that the passage answers the text.

It is a logistic regression over seven lexical features. Its file is readable JSON, with a weight for each feature and
a report on held-out conversations. The text is the need, or the query that was searched. A score depends only on the
text, the passage and the knowledge base, never on the other candidates.
"""

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, Self

from pydantic import ValidationError

from qinglan.config import Config, Fraction, Name, explain_validation_error
from qinglan.errors import ConfigError
from qinglan.rag.contract import Passage
from qinglan.rag.knowledge_base import searched_text
from qinglan.rag.lexical.index import CACHED_PASSAGES, Index
from qinglan.text.text import is_pair, search_terms, whole_terms

RIVALS = 10
"""Number of rivals: the text's best hits in the whole knowledge base, with which a passage is compared."""


class Features(NamedTuple):
    """Inputs of the regression, each between 0 and 1. A term weighs more the rarer it is in the knowledge base."""

    coverage: float
    """Weighted share of the text's terms that also occur in the passage, from 0 to 1."""

    spread: float
    """Weighted share of the passage's terms that also occur in the text, from 0 to 1."""

    title: float
    """Weighted share of the title's terms that also occur in the text, from 0 to 1."""

    ahead: float
    """Difference by which the passage's coverage exceeds the best rival's; 0 if it does not."""

    behind: float
    """Difference by which the best rival's coverage exceeds the passage's; 0 if it does not."""

    bm25_ahead: float
    """Difference by which the passage's BM25 score exceeds the best rival's, divided by the best score, or 0."""

    bm25_behind: float
    """Difference by which the best rival's BM25 score exceeds the passage's, divided by the best score; not below 0.
    It is 1 if the passage is not among the best hits."""


class Weights(Config):
    """Weight of each feature."""

    coverage: float
    spread: float
    title: float
    ahead: float
    behind: float
    bm25_ahead: float
    bm25_behind: float


class CalibrationBin(Config):
    """Predicted and observed frequency of answers, for the (text, passage) pairs in one tenth of the score range."""

    score: Fraction
    """Mean score of the pairs."""

    frequency: Fraction
    pairs: int


class FitReport(Config):
    """Quality of a fitted reranker, on training conversations that were held out of the fit."""

    tenant_id: Name
    snapshot: str
    """Digest of the knowledge base on which the reranker was fitted."""

    labels: str
    """Digest of the labelled rows."""

    fitted_conversations: int
    held_out_conversations: int
    held_out_pairs: int
    auc: Fraction | None
    """Area under the ROC curve: probability that a passage that answers scores higher than a passage that does not.
    None if one kind of passage is missing."""

    calibration_error: Fraction | None
    """Expected calibration error: the mean distance between score and frequency, over ten equal score bins."""

    top1_calibration_error: Fraction | None
    """`calibration_error` over the first passage of each question, because thresholds and rewards use its score."""

    top1_answers: Fraction | None = None
    """Share of questions whose first passage answers the question, if this reranker orders the passages."""

    reliability: tuple[CalibrationBin, ...] = ()


class RerankerModel(Config):
    """Bias and weights of a reranker, with the report on its fit."""

    bias: float
    weights: Weights
    report: FitReport | None = None
    """Report on the fit. None if the reranker is not fitted to this tenant; its scores are then no probabilities."""

    @property
    def calibrated(self) -> bool:
        return self.report is not None

    def score(self, signs: Features) -> float:
        total = self.bias + sum(value * getattr(self.weights, name) for name, value in signs._asdict().items())
        return 1 / (1 + math.exp(-max(-60.0, min(60.0, total))))


DEFAULT_RERANKER = RerankerModel(
    bias=-4.42,
    weights=Weights(
        coverage=-0.15, spread=-1.96, title=3.93, ahead=8.2, behind=-11.1, bm25_ahead=26.1, bm25_behind=-0.29
    ),
)
"""Reranker for a tenant without labels, fitted on the training conversations of both sample tenants."""


def read_reranker(path: Path) -> RerankerModel:
    """Read a reranker from its file. Raises a ConfigError with the next step if the file is missing or invalid."""
    try:
        return RerankerModel.model_validate_json(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}). Fit it, or leave it out.") from error
    except ValidationError as error:
        raise ConfigError(f"{path}: no reranker: {explain_validation_error(error)}. Fit it again.") from error


class WeightedText(NamedTuple):
    """Terms of a text, with their weights in the knowledge base; rarer terms weigh more."""

    weights: Mapping[str, float]
    """Weight of each term that occurs in the knowledge base."""

    total: float
    """Sum of all weights, unknown terms included."""


class SearchedText(NamedTuple):
    """Text that can be searched for terms. To search for a pair of characters is faster than to cut the text."""

    text: str
    whole_terms: frozenset[str]

    @classmethod
    def of(cls, text: str) -> Self:
        return cls(text.lower(), whole_terms(text.lower()))

    def __contains__(self, term: object) -> bool:
        return term in self.whole_terms or (isinstance(term, str) and is_pair(term) and term in self.text)


class WeightedPassage(NamedTuple):
    """Body and title of a passage, with their weights, for the comparison with texts."""

    text: SearchedText
    title: SearchedText
    weight: float
    title_weight: float

    @classmethod
    def of(cls, passage: Passage, weight: float, title_weight: float) -> Self:
        return cls(SearchedText.of(searched_text(passage)), SearchedText.of(passage.title), weight, title_weight)


class LexicalReranker:
    """Local reranker over the passages of one knowledge base."""

    def __init__(self, index: Index, model: RerankerModel) -> None:
        self.index = index
        self.model = model
        self._compared = lru_cache(CACHED_PASSAGES)(self._read)

    def scores(self, text: str, numbers: Sequence[int]) -> list[float]:
        return [self.model.score(signs) for signs in self.signs(text, numbers)]

    def signs(self, text: str, numbers: Sequence[int]) -> list[Features]:
        bm25 = dict(self.index.search(text, RIVALS))
        return compute_features(
            self._weigh(text), bm25, {it: self._compared(it) for it in {*numbers, *bm25}}, numbers
        )

    def _weigh(self, text: str) -> WeightedText:
        known = {term: self.index.idf(term) for term in self.index.query_terms(text)}
        unknown = sum(1 for term in set(search_terms(text)) if not self.index.df(term))
        return WeightedText(known, sum(known.values()) + unknown * self.index.idf(""))

    def _read(self, number: int) -> WeightedPassage:
        index = self.index
        return WeightedPassage.of(index.passage(number), index.weight(number), index.title_weight(number))


def compute_features(
    query: WeightedText, bm25: Mapping[int, float], passages: Mapping[int, WeightedPassage], numbers: Sequence[int]
) -> list[Features]:
    """Compute the features of the passages `numbers`. `bm25` has the text's best hits in the knowledge base."""
    shared = {number: shared_weight(query.weights, passages[number].text) for number in {*numbers, *bm25}}
    rivals = {number: _share(shared[number], query.total) for number in bm25}
    return [_passage_features(number, query, passages[number], shared[number], rivals, bm25) for number in numbers]


def _passage_features(
    number: int,
    query: WeightedText,
    passage: WeightedPassage,
    shared: float,
    rivals: Mapping[int, float],
    bm25: Mapping[int, float],
) -> Features:
    lead = _share(shared, query.total) - _best_other(rivals, number)
    bm25_lead = -1.0
    if number in bm25:
        bm25_lead = _share(bm25[number] - _best_other(bm25, number), max(bm25.values()))
    named = shared_weight(query.weights, passage.title)
    return Features(
        coverage=_share(shared, query.total),
        spread=_share(shared, passage.weight),
        title=_share(named, passage.title_weight),
        ahead=max(lead, 0.0),
        behind=max(-lead, 0.0),
        bm25_ahead=max(bm25_lead, 0.0),
        bm25_behind=max(-bm25_lead, 0.0),
    )


def shared_weight(weights: Mapping[str, float], text: SearchedText) -> float:
    return sum(weight for term, weight in weights.items() if term in text)


def _best_other(values: Mapping[int, float], number: int) -> float:
    return max((value for other, value in values.items() if other != number), default=0.0)


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
