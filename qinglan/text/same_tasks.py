"""Finds rows that are the same task: near-duplicates, and the same question with a differently worded history.

index = TaskIndex(["question|history", …], threshold=0.8, complete={"question|history", …})
index.alike("question|history")     # known tasks that are the same as this row's

Two rows are one task if their texts are near-duplicates, or if their questions are alike (by Jaccard, or one contains
the other) and one of these conditions is true:

- One of the rows has no history.
- One history contains the other: boilerplate or older turns around a history do not make another task.
- The known question is complete: it says by itself what it is about, so that its history does not matter.

An incomplete question (那它一天吃几次) after another history is another task. Only words in SYNONYMS are synonyms.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache

from qinglan.text.near_duplicates import ROUNDING, ContainmentIndex, NearDuplicateIndex, shingles, similarity

HELD = 0.9
"""Smallest share of the shorter question or history that the longer question or history must contain. Two questions
from a template with different product names share less."""

SMALLEST_HELD = 8
"""Smallest number of pieces in a question for which containment is enough, because a shorter question is contained in
too many others."""

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
"""Words that are replaced by their key before questions are compared. The empty key removes polite words and
particles."""

_WORDS: Mapping[str, str] = {word: plain for plain, words in SYNONYMS.items() for word in words}
_WORD = re.compile("|".join(sorted(_WORDS, key=lambda word: -len(word))))


@lru_cache(1 << 16)
def plain_question(question: str) -> str:
    """Replace words of a normalised question by SYNONYMS. If nothing would be left, the question is returned
    unchanged."""
    return _WORD.sub(lambda match: _WORDS[match[0]], question) or question


class TaskIndex(NearDuplicateIndex):
    """Index of known tasks by question and history; finds the tasks that are the same as a row's."""

    def __init__(self, tasks: Iterable[str], threshold: float, complete: Collection[str] = frozenset()) -> None:
        super().__init__(tasks, threshold)
        parts = [_parts(text) for text in self.texts]
        held = max(threshold, HELD)
        self._questions = ContainmentIndex((question for question, _ in parts), held)
        self._histories = ContainmentIndex((history for _, history in parts if history), held)
        self._history = [history for _, history in parts]
        self._open = [
            text in complete or not history for text, history in zip(self.texts, self._history, strict=True)
        ]
        self._tasks_by_question = defaultdict[str, list[int]](list)
        for task, (question, _) in enumerate(parts):
            self._tasks_by_question[question].append(task)
        self._alike_questions = lru_cache(1 << 14)(self._tasks_with_alike_question)

    def alike(self, text: str) -> list[str]:
        """Return the known tasks that are the same as the row's task, near-duplicates first."""
        near = super().alike(text)
        question, history = _parts(text)
        tasks = self._alike_questions(question)
        if history and not all(self._open[task] for task in tasks):
            related = {self._histories.texts[number] for number in self._histories.related(history)}
            tasks = [task for task in tasks if self._open[task] or self._history[task] in related]
        return list(dict.fromkeys([*near, *(self.texts[task] for task in tasks)]))

    def _tasks_with_alike_question(self, question: str) -> list[int]:
        """Return the tasks whose question contains this question or is contained in it. A short question must also be
        alike by Jaccard."""
        pieces, tasks = shingles(question), list[int]()
        for number in self._questions.related(question):
            known = self._questions.texts[number]
            other = shingles(known)
            is_long = min(len(pieces), len(other)) >= SMALLEST_HELD
            if is_long or similarity(pieces, other) >= self._questions.threshold - ROUNDING:
                tasks += self._tasks_by_question[known]
        return tasks


def _parts(text: str) -> tuple[str, str]:
    question, _, history = text.partition("|")
    return plain_question(question), history
