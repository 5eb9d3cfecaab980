"""Finds rows that are one task: near-duplicates, and the same question however its history is told.

index = TaskIndex(["question|history", …], threshold=0.8, complete={"question|history", …})
index.alike("question|history")     # the known tasks that this row gives away

Two rows are one task if their texts are near-duplicates, or if their questions are alike (by Jaccard, or one holds
the other) and one of these holds:

- one of them has no history,
- one history holds the other: lines of boilerplate around it, or older turns, make no other task,
- the known question is complete: it says by itself what it is about, so that its history does not matter.

A question in pieces (那它一天吃几次) after another history stays another task. Synonyms are compared as far as the
short table below knows them.
"""

import math
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from qinglan.text.near_duplicates import ROUNDING, NearDuplicateIndex, rank_by_rarity, shingles

Ids = NDArray[np.intp]

HELD = 0.9
"""Share of the smaller question or history that the larger one must hold, at least: templates with another product's
name share less."""

COMPARED_PIECES = 6
"""Rarest pieces that two texts must share before they are compared whole. It changes the time, never the result."""

SMALLEST_HELD = 8
"""Pieces of a question that another one may merely hold: a shorter one is held by too many."""

SYNONYMS = {
    "": ("请问一下", "请问", "您好", "你好", "麻烦", "谢谢", "想问一下", "想问下", "我想问", "想问", "问一下", "一下",
         "亲", "吗", "呢", "啊", "呀", "吧", "嘛", "哦", "please", "hello", "thankyou", "thanks", "couldyoutellme",
         "canyoutellme", "iwouldliketoknow", "idliketoknow"),
    "怎么": ("怎么样", "如何", "怎样", "咋"),
    "吃": ("服用", "食用", "口服"),
    "每日": ("一天", "每天", "一日"),
    "能": ("可不可以", "能不能", "可以", "能够", "可否", "能否"),
    "几": ("多少",),
    "价": ("价格", "价钱", "几钱", "多少钱"),
    "买": ("购买", "选购"),
    "多久": ("多长时间", "几久"),
}  # fmt: skip
"""Words of questions that are compared as the first one; politeness and particles as nothing."""

_WORDS: Mapping[str, str] = {word: plain for plain, words in SYNONYMS.items() for word in words}
_WORD = re.compile("|".join(sorted(_WORDS, key=lambda word: -len(word))))


@lru_cache(1 << 16)
def plain_question(question: str) -> str:
    """A normalised question without politeness, in the first words of SYNONYMS; itself if nothing would be left."""
    return _WORD.sub(lambda match: _WORDS[match[0]], question) or question


class ContainmentIndex:
    """Distinct texts, of which those are found that hold a text, or that it holds, up to a share of the smaller."""

    def __init__(self, texts: Iterable[str], threshold: float) -> None:
        self.threshold, self.texts = threshold, list(dict.fromkeys(texts))
        self._rank = rank_by_rarity(self.texts)
        self._pieces = [frozenset(self._rank[piece] for piece in shingles(text)) for text in self.texts]
        held, rare = defaultdict[int, list[int]](list), defaultdict[int, list[int]](list)
        for at, pieces in enumerate(self._pieces):
            ordered = sorted(pieces)
            for number, piece in enumerate(ordered):
                held[piece].append(at)
                if number < self._wide(len(ordered)):
                    rare[piece].append(at)
        self._held = {piece: np.array(texts, dtype=np.intp) for piece, texts in held.items()}
        self._rare = {piece: np.array(texts, dtype=np.intp) for piece, texts in rare.items()}
        self._shared = np.array([self._least_shared(len(pieces)) for pieces in self._pieces], dtype=np.intp)

    def related(self, text: str) -> list[int]:
        """Numbers of the known texts that share enough of the smaller one's pieces.

        The smaller text shares all but few of its pieces, so its rarest ones are shared: by the query, whose own
        unknown pieces are the rarest of all, or by a known text that is smaller than the query.
        """
        pieces = shingles(text)
        ranks = sorted(self._rank[piece] for piece in pieces if piece in self._rank)
        rarest = ranks[: max(0, self._wide(len(pieces)) - (len(pieces) - len(ranks)))]
        larger = self._count(self._held, rarest) >= self._least_shared(len(pieces))
        smaller = self._count(self._rare, ranks) >= self._shared
        query = frozenset(ranks)
        return [at for at in np.flatnonzero(larger | smaller).tolist() if self._is_related(query, len(pieces), at)]

    def _count(self, texts: Mapping[int, Ids], pieces: Iterable[int]) -> Ids:
        """For each known text how many of these pieces lead to it."""
        listed = [texts[piece] for piece in pieces if piece in texts]
        return np.bincount(np.concatenate(listed) if listed else [], minlength=len(self.texts))

    def _is_related(self, ranks: frozenset[int], size: int, at: int) -> bool:
        smaller = min(size, len(self._pieces[at]))
        return len(ranks & self._pieces[at]) >= self.threshold * smaller - ROUNDING

    def _wide(self, size: int) -> int:
        """Rarest pieces of a text of this size to compare: all but `_least_shared` may be missing in one that holds
        enough of it."""
        return size - self._least(size) + self._least_shared(size)

    def _least_shared(self, size: int) -> int:
        return min(COMPARED_PIECES, self._least(size))

    def _least(self, size: int) -> int:
        return max(1, math.ceil(self.threshold * size - ROUNDING))


class TaskIndex(NearDuplicateIndex):
    """Tasks by question and history; finds those that a row gives away."""

    def __init__(self, tasks: Iterable[str], threshold: float, complete: Collection[str] = frozenset()) -> None:
        super().__init__(tasks, threshold)
        parts = [_parts(text) for text in self.texts]
        held = max(threshold, HELD)
        self._questions = ContainmentIndex((question for question, _ in parts), held)
        self._histories = ContainmentIndex((history for _, history in parts if history), held)
        number = {question: at for at, question in enumerate(self._questions.texts)}
        histories = {history: at for at, history in enumerate(self._histories.texts)}
        tasks_by_question = defaultdict[int, list[int]](list)
        for at, (question, _) in enumerate(parts):
            tasks_by_question[number[question]].append(at)
        self._tasks_by_question = {
            question: np.array(tasks, dtype=np.intp) for question, tasks in tasks_by_question.items()
        }
        self._history = np.array([histories.get(history, -1) for _, history in parts], dtype=np.intp)
        without = np.array([not history for _, history in parts], dtype=bool)
        self._open = np.array([text in complete for text in self.texts], dtype=bool) | without
        self._alike_questions = lru_cache(1 << 14)(self._tasks_with_alike_question)

    def alike(self, text: str) -> list[str]:
        """The known tasks that the row is one with, near-duplicates first."""
        near = super().alike(text)
        question, history = _parts(text)
        tasks = self._alike_questions(question)
        if not len(tasks):
            return near
        same = self._open[tasks] if history else np.ones(len(tasks), dtype=bool)
        if not same.all() and (related := self._histories.related(history)):
            same |= np.isin(self._history[tasks], related)
        return list(dict.fromkeys([*near, *(self.texts[at] for at in tasks[same].tolist())]))

    def _tasks_with_alike_question(self, question: str) -> Ids:
        pieces = shingles(question)
        tasks = [
            self._tasks_by_question[at]
            for at in self._questions.related(question)
            if self._is_alike_question(pieces, shingles(self._questions.texts[at]))
        ]
        return np.concatenate(tasks) if tasks else np.empty(0, dtype=np.intp)

    def _is_alike_question(self, pieces: set[str], other: set[str]) -> bool:
        """Related by containment; a short one is alike by Jaccard alone."""
        shared = len(pieces & other)
        jaccard = shared / (len(pieces) + len(other) - shared)
        return min(len(pieces), len(other)) >= SMALLEST_HELD or jaccard >= self._questions.threshold - ROUNDING


def _parts(text: str) -> tuple[str, str]:
    question, _, history = text.partition("|")
    return plain_question(question), history
