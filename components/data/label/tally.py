"""Sum up the labelled rows: counts, agreement of the two judges and of people, and phrasings without an answer."""

import heapq
import re
from collections import Counter, defaultdict
from typing import Any

from components.data.label.agreement import Measured, by_phrasing, phrasings, share
from components.data.label.config import LabelConfig
from qinglan.rows.labels import RELEVANT, JudgedPassage, Outcome, RowLabels
from qinglan.rows.rows import ValidatedRewrite
from qinglan.rows.splits import draw_key

CHINESE = re.compile("[\u4e00-\u9fff]")
MOST_QUESTIONS = 2_000
"""Highest number of questions without an answer that are grouped by phrasing."""

LISTED_PHRASINGS = 20


class Tally:
    """Counters, updated row by row. Their memory does not grow with the sheet, but for a truth value per label."""

    def __init__(self, config: LabelConfig) -> None:
        self._config = config
        self.outcomes: Counter[Outcome] = Counter()
        self.grades: Counter[int] = Counter()
        self.calls = self.corrected = self.foreign_reasons = 0
        self.unusable: Counter[str] = Counter()
        self._confirmed: list[tuple[tuple[str, str], bool]] = []
        self._people: list[Measured] = []
        self._people_only: list[str] = []
        self._unanswered: list[str] = []
        self._drawn: list[tuple[bytes, ValidatedRewrite, RowLabels]] = []

    def add(self, row: ValidatedRewrite, labels: RowLabels) -> None:
        self.outcomes[labels.outcome] += 1
        self.calls += labels.calls
        self.unusable.update(labels.unusable)
        for passage in labels.judged:
            self._add_passage(row, passage)
        if labels.outcome == "nothing relevant" and len(self._unanswered) < MOST_QUESTIONS:
            self._unanswered.append(row.question)
        if labels.judged:
            self._drawn.append((draw_key(self._config.seed, row.tenant_id, row.id), row, labels))
            if len(self._drawn) > 2 * self._config.checked_rows:
                self._drawn = self._lowest_draws()

    def _add_passage(self, row: ValidatedRewrite, passage: JudgedPassage) -> None:
        self.grades[passage.grade] += 1
        self.foreign_reasons += bool(passage.reason) and not CHINESE.search(passage.reason)
        if len(passage.grades) == 2:
            self._confirmed.append(((row.tenant_id, row.conversation_id), passage.grades[1] >= RELEVANT))
        if passage.source == "person":
            self.corrected += 1
            if passage.grades:
                agreed = (min(passage.grades) >= RELEVANT) == (passage.grade >= RELEVANT)
                self._people.append(Measured(row.question, agreed))
            else:
                self._people_only.append(f"{passage.id} of {row.id}")

    def _lowest_draws(self) -> list[tuple[bytes, ValidatedRewrite, RowLabels]]:
        return heapq.nsmallest(self._config.checked_rows, self._drawn, key=lambda entry: entry[0])

    def sheet(self) -> list[tuple[ValidatedRewrite, RowLabels]]:
        """Return the rows that people are asked to check."""
        return [(row, labels) for _, row, labels in self._lowest_draws()]

    def report(self) -> dict[str, Any]:
        """Return the report as plain data, without the test of the judges and the measurement by gold."""
        rows: dict[int, list[str]] = defaultdict(list)
        for group, question in zip(phrasings(self._unanswered), self._unanswered, strict=True):
            rows[group].append(question)
        most = sorted(rows.values(), key=len, reverse=True)[:LISTED_PHRASINGS]
        groups, agreed = [group for group, _ in self._confirmed], [right for _, right in self._confirmed]
        return {
            "outcomes": dict(self.outcomes), "grades": {str(grade): self.grades[grade] for grade in range(4)},
            "calls": self.calls, "unusable": dict(self.unusable), "reasons_without_chinese": self.foreign_reasons,
            "second_judge_agrees": share(agreed, groups, self._config.seed),
            "people_agree": by_phrasing(self._people, self._config.seed),
            "graded_by_people_only": self._people_only,
            "phrasings_without_answer": [{"question": group[0], "rows": len(group)} for group in most],
        }  # fmt: skip
