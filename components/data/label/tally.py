"""Count the labelled rows, compare judges with each other and with people, and draw the rows for people's sheet."""

import heapq
from collections import Counter
from typing import Any

from components.data.label.config import LabelConfig
from components.data.label.measure import Check, share_right
from qinglan.rows.labels import RELEVANT, Outcome, RowLabels
from qinglan.rows.rows import ValidatedRewrite
from qinglan.rows.splits import draw_key


class Tally:
    """Counters that are updated row by row. In memory they keep only a small entry per compared label, and the rows
    drawn for people's sheet."""

    def __init__(self, config: LabelConfig) -> None:
        self._config = config
        self.outcomes: Counter[Outcome] = Counter()
        self.calls = self.passages = self.corrected = 0
        self._confirmed: list[Check] = []
        self._people: list[Check] = []
        self._people_only: list[str] = []
        self._drawn: list[tuple[bytes, ValidatedRewrite, RowLabels]] = []

    def add(self, row: ValidatedRewrite, labels: RowLabels) -> None:
        conversation = (row.tenant_id, row.conversation_id)
        self.outcomes[labels.outcome] += 1
        self.calls += labels.calls
        self.passages += len(labels.judged)
        for passage in labels.judged:
            if len(passage.grades) == 2:
                self._confirmed.append(Check(conversation, passage.grades[1] >= RELEVANT))
            if passage.source == "person":
                self.corrected += 1
                if passage.grades:
                    agreed = (min(passage.grades) >= RELEVANT) == (passage.grade >= RELEVANT)
                    self._people.append(Check(conversation, agreed))
                else:
                    self._people_only.append(f"{passage.id} of {row.id}")
        if labels.judged:
            self._drawn.append((draw_key(self._config.seed, row.tenant_id, row.id), row, labels))
            if len(self._drawn) > 2 * self._config.checked_rows:
                self._drawn = self._lowest_draws()

    def _lowest_draws(self) -> list[tuple[bytes, ValidatedRewrite, RowLabels]]:
        return heapq.nsmallest(self._config.checked_rows, self._drawn, key=lambda entry: entry[0])

    def sheet(self) -> list[tuple[ValidatedRewrite, RowLabels]]:
        return [(row, labels) for _, row, labels in self._lowest_draws()]

    def report(self) -> dict[str, Any]:
        """Return the report as plain data, without the measurement by gold."""
        return {
            "outcomes": dict(self.outcomes),
            "calls": self.calls,
            "second_judge_agrees": share_right(self._confirmed, self._config.seed),
            "people_agree": share_right(self._people, self._config.seed),
            "graded_by_people_only": self._people_only,
        }
