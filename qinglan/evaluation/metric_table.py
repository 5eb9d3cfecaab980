"""Table with one number per row, system and metric. It computes each system's mean values (levels) and the paired
differences between two systems.

table = MetricTable.of(rows, values, METRICS, draws, seed)
table.levels()                                   # {system: {metric: {value, low, high, n, how}}}
table.compare(pairs, metrics, {"": None})        # {(pair, subset, metric): {difference, low, high, p, ...}}
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from qinglan.evaluation import statistics
from qinglan.evaluation.metrics import Metric
from qinglan.evaluation.statistics import Columns, Groups
from qinglan.rows.rows import Question

Json = dict[str, Any]
Pair = tuple[str, str]
Chosen = Sequence[bool] | None
"""One flag per row, True if the row is in a subset such as one tenant's rows; None means all rows."""


class MetricTable(NamedTuple):
    systems: tuple[str, ...]
    metrics: Mapping[str, Metric]
    values: dict[tuple[str, str], Columns]
    """Column of numbers for each system and metric; NaN if a row has no value."""

    conversations: Groups
    draws: int
    seed: int

    @classmethod
    def of(
        cls,
        rows: Sequence[Question],
        values: Sequence[Mapping[str, Mapping[str, float]]],
        metrics: Mapping[str, Metric],
        draws: int,
        seed: int,
    ) -> "MetricTable":
        """Build the table from each row's numbers by system and metric; a missing number becomes NaN."""
        systems = tuple(values[0])
        columns = {
            (system, metric): np.array([row[system].get(metric, math.nan) for row in values])
            for system in systems
            for metric in metrics
        }
        groups = statistics.group_numbers([(row.tenant_id, row.conversation_id) for row in rows])
        return cls(systems, metrics, columns, groups, draws, seed)

    @property
    def rows(self) -> int:
        return len(self.conversations)

    @property
    def conversation_count(self) -> int:
        return int(self.conversations.max()) + 1

    def known(self, system: str, metric: str) -> int:
        return int((~np.isnan(self.values[system, metric])).sum())

    def levels(self) -> Json:
        estimates = self._means(list(self.values.values()))
        levels: Json = {system: {} for system in self.systems}
        for (system, metric), estimate in zip(self.values, estimates, strict=True):
            levels[system][metric] = {**estimate, "how": self.metrics[metric].how}
        return levels

    def level_in(self, metric: str, chosen: Chosen) -> Json:
        """Estimate the mean of one metric over the chosen rows, for each system."""
        columns = [_only(self.values[system, metric], chosen) for system in self.systems]
        return dict(zip(self.systems, self._means(columns), strict=True))

    def _means(self, columns: Sequence[Columns]) -> list[Json]:
        means = statistics.bootstrap_means(np.column_stack(columns), self.conversations, self.draws, self.seed)
        return [estimate._asdict() for estimate in means]

    def difference(self, pair: Pair, metric: str) -> Columns:
        """Return the first system's numbers minus the second system's, row by row."""
        return self.values[pair[0], metric] - self.values[pair[1], metric]

    def compare(
        self, pairs: Sequence[Pair], metrics: Sequence[str], subsets: Mapping[str, Chosen]
    ) -> dict[tuple[Pair, str, str], Json]:
        """Compute each pair's paired difference in each metric and subset, all from the same bootstrap draws."""
        keys = [(pair, subset, metric) for pair in pairs for subset in subsets for metric in metrics]
        columns = [_only(self.difference(pair, metric), subsets[subset]) for pair, subset, metric in keys]
        gaps = statistics.paired_differences(np.column_stack(columns), self.conversations, self.draws, self.seed)
        return {key: gap._asdict() for key, gap in zip(keys, gaps, strict=True)}

    def spread(self, pair: Pair, metric: str) -> statistics.Spread:
        """Return the spread of a pair's differences. From it follows how many queries are needed to show a
        difference."""
        return statistics.spread(self.difference(pair, metric), self.conversations)


def _only(column: Columns, chosen: Chosen) -> Columns:
    return column if chosen is None else np.where(np.array(chosen), column, math.nan)
