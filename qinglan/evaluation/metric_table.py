"""A table with one number per row, system and metric, and from it each system's levels and the paired differences of
two systems.

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
"""True for each row of a subset, such as a tenant or a slice; None for all rows."""


class MetricTable(NamedTuple):
    systems: tuple[str, ...]
    metrics: Mapping[str, Metric]
    values: dict[tuple[str, str], Columns]
    """A column for each system and metric; NaN if the row has no value."""

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
        """Build the table from each row's numbers by system and metric; a missing number is unknown (NaN)."""
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
        """Each system's estimate of one metric over the chosen rows."""
        columns = [_only(self.values[system, metric], chosen) for system in self.systems]
        return dict(zip(self.systems, self._means(columns), strict=True))

    def _means(self, columns: Sequence[Columns]) -> list[Json]:
        means = statistics.bootstrap_means(np.column_stack(columns), self.conversations, self.draws, self.seed)
        return [estimate._asdict() for estimate in means]

    def difference(self, pair: Pair, metric: str) -> Columns:
        """The first system's numbers minus the second's, row by row."""
        return self.values[pair[0], metric] - self.values[pair[1], metric]

    def compare(
        self, pairs: Sequence[Pair], metrics: Sequence[str], subsets: Mapping[str, Chosen]
    ) -> dict[tuple[Pair, str, str], Json]:
        """Each pair's paired difference in each metric and subset, all from the same draws."""
        keys = [(pair, subset, metric) for pair in pairs for subset in subsets for metric in metrics]
        columns = [_only(self.difference(pair, metric), subsets[subset]) for pair, subset, metric in keys]
        gaps = statistics.paired_differences(np.column_stack(columns), self.conversations, self.draws, self.seed)
        return {key: gap._asdict() for key, gap in zip(keys, gaps, strict=True)}

    def spread(self, pair: Pair, metric: str) -> statistics.Spread:
        """The spread of a pair's differences, from which the number of queries needed to show a difference is
        computed."""
        return statistics.spread(self.difference(pair, metric), self.conversations)


def _only(column: Columns, chosen: Chosen) -> Columns:
    return column if chosen is None else np.where(np.array(chosen), column, math.nan)
