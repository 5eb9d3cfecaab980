"""Second judge of the stand-in, which compares vectors; the first judge (lexical_judge.py) compares phrases.

Every passage and every heading is a vector of character n-grams. The nearer a passage is to the conversation, the
more likely the user means it. The passages nearest to a rewrite are its meaning. The first judge's parser, phrases
and search are not used here, so that the two judges err at different rewrites.

judge = SimilarityJudge(list(read_knowledge_base(Path("knowledge_base.jsonl"))))
judge.judge(task)      # the fields of JUDGE_FORMAT
"""

import math
import re
import zlib
from collections.abc import Iterable
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qinglan.rag.contract import Passage
from standins.teacher.prompt_parser import PromptTask

SUFFIX = "-examiner"
"""Suffix of the name of this judge's model, after the tenant's name."""

CRITERION_WEIGHTS = {"意图保留": 0.4, "自足": 0.2, "无编造": 0.15, "简洁": 0.25}
"""Weights of the criteria in a geometric mean, in which no criterion can compensate another that failed."""

NEAREST = 3
"""Number of nearest passages that count as the meaning of a rewrite."""

SIMILARITY_SMOOTHING = 0.1
"""Amount that is added to a similarity, because an unknown phrasing does not prove that the passage is wrong."""

CLEAR_SIMILARITY = 0.55
"""Similarity to a heading at which a text counts as naming its subject."""

LENGTH_ALLOWANCE = 6
"""Characters by which a rewrite may exceed the longer of question and heading."""

DIGITS = re.compile(r"[0-9]+")
Vector = NDArray[np.float64]


class JudgeScores(NamedTuple):
    """Scores in [0, 1] of the four criteria, in the order of the prompt."""

    intent: float
    clear: float
    honest: float
    short: float


class SimilarityJudge:
    """Judge with one knowledge base as vectors. A judgement takes one or two milliseconds."""

    def __init__(self, passages: list[Passage]) -> None:
        self._passages = passages
        self._possible = lru_cache(maxsize=256)(self._weigh)  # the same conversation comes with each system's rewrite

    def judge(self, task: PromptTask) -> dict[str, float | str]:
        """Judge a rewrite: four scores and the overall score, from 1 to 5, and a reason."""
        if not task.rewrite.strip():
            return {**dict.fromkeys(CRITERION_WEIGHTS, 1.0), "综合得分": 1.0, "评分理由": "没有改写。"}
        marks = self._marks(task)
        scores = {name: round(1 + 4 * mark, 1) for name, mark in zip(CRITERION_WEIGHTS, marks, strict=True)}
        worst = min(scores, key=lambda name: scores[name])
        reason = "各项都好。" if scores[worst] >= 4 else f"{worst}偏低。"
        return {**scores, "综合得分": overall_score(marks), "评分理由": reason}

    def _marks(self, task: PromptTask) -> JudgeScores:
        near = self._near(self._whole, task.rewrite)
        means = np.argsort(-near)[:NEAREST]
        best = self._passages[int(means[0])]
        known = f"{task.context}{best.title}{best.content}"
        return JudgeScores(
            self._intent(task, near, means),
            self._clear(task.rewrite),
            grounding_score(task, known),
            brevity_score(task, best.title),
        )

    def _intent(self, task: PromptTask, near: Vector, means: NDArray[np.int64]) -> float:
        """Return the mean likelihood of the passages nearest to the rewrite, weighted by similarity."""
        possible, weights = self._possible(task.question, task.history), near[means] ** 4
        if weights.sum() <= 0:
            return 0.0
        return float(possible[means] @ weights / weights.sum())

    def _weigh(self, question: str, history: str) -> Vector:
        """Return the likelihood that the user means each passage, scaled so that the likeliest passage has 1."""
        about = self._near(self._headings, f"{question} {history}")
        wants = self._near(self._whole, question)
        possible = ((SIMILARITY_SMOOTHING + about) * (SIMILARITY_SMOOTHING + wants)) ** 2
        return np.asarray(possible / possible.max())

    def _clear(self, rewrite: str) -> float:
        return min(1.0, float(self._near(self._headings, rewrite).max()) / CLEAR_SIMILARITY)

    def _near(self, matrix: Any, text: str) -> Vector:
        """Return the cosine similarity of the text to each column of the matrix."""
        return np.asarray((self._vectors.transform([text]) @ matrix).todense(), dtype=np.float64).ravel()

    @cached_property
    def _vectors(self) -> Any:
        """Vectorizer, fitted at its first use in about a second, so that a run without evaluation does not wait."""
        from sklearn.feature_extraction.text import TfidfVectorizer

        return TfidfVectorizer(analyzer="char", ngram_range=(1, 3), sublinear_tf=True).fit(
            f"{passage.title}\n{passage.content}" for passage in self._passages
        )

    @cached_property
    def _whole(self) -> Any:
        return self._columns(f"{passage.title}\n{passage.content}" for passage in self._passages)

    @cached_property
    def _headings(self) -> Any:
        return self._columns(passage.title or passage.content[:30] for passage in self._passages)

    def _columns(self, texts: Iterable[str]) -> Any:
        """Vectors of the texts as columns, stored by n-gram, so that a short text reads only few rows."""
        return self._vectors.transform(texts).T.tocsr()


def overall_score(marks: JudgeScores) -> float:
    """Return the overall score from 1 to 5, as the weighted geometric mean of the criteria."""
    logs = sum(
        power * math.log(max(mark, 0.01)) for power, mark in zip(CRITERION_WEIGHTS.values(), marks, strict=True)
    )
    return round(1 + 4 * math.exp(logs), 1)


def grounding_score(task: PromptTask, known: str) -> float:
    """Return the share of the rewrite's characters that are in `known`; 0 if a number of the rewrite is not."""
    if set(DIGITS.findall(task.rewrite)) - set(DIGITS.findall(known)):
        return 0.0
    letters = [letter for letter in task.rewrite if letter.isalnum()]
    return sum(letter in known for letter in letters) / len(letters) if letters else 0.0


def brevity_score(task: PromptTask, title: str) -> float:
    """Score the length: 1 up to the allowed length, then less. Repeated words (which compress well) lower it."""
    length, room = len(task.rewrite), max(len(task.question), len(title)) + LENGTH_ALLOWANCE
    squeezed = len(zlib.compress(task.rewrite.encode())) / (len(task.rewrite.encode()) + 8)
    return min(1.0, room / max(length, 1)) ** 3 * min(1.0, squeezed / 0.7)
