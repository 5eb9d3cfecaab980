"""evaluation.json, put together from every row's numbers: pure but for the moment it is asked for."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from components.evaluation.rewriter.config import EvaluateConfig
from components.evaluation.rewriter.measures import METRICS
from components.evaluation.rewriter.score_systems import ScoredRows
from components.evaluation.rewriter.student_inference import StudentOutput
from qinglan import statistics
from qinglan.rows import Question
from qinglan.statistics import Columns, Groups

PAIRS = (
    ("rl", "teacher"),
    ("sft", "teacher"),
    ("rl", "sft"),
    ("rl", "plain"),
    ("sft", "plain"),
    ("teacher", "plain"),
)
COMPARED = ("top1", "ndcg", "recall", "judged_top1", "quality")
"""The first is the verdict's; the others stand inside it by name."""

EXPECTED: dict[str, dict[str, float]] = {
    "teacher": {"quality": 4.8, "top1": 0.85, "latency_p50": 2000.0, "cost": 25.0},
    "sft": {"quality": 4.3, "top1": 0.78, "latency_p50": 850.0, "cost": 2.5},
    "rl": {"quality": 4.6, "top1": 0.88, "latency_p50": 900.0, "cost": 2.8},
}
"""What the plan hopes for, its part 6."""

Json = dict[str, Any]


class MetricTable(NamedTuple):
    """One number a row, system and metric."""

    systems: tuple[str, ...]
    values: dict[tuple[str, str], Columns]
    conversations: Groups
    tenants: tuple[str, ...]
    tenant_of: list[str]
    slices_of: list[Sequence[str]]

    @classmethod
    def of(cls, rows: Sequence[Question], asking: ScoredRows, slices: Mapping[str, Sequence[str]]) -> "MetricTable":
        systems = tuple(asking.values[0])
        values = {
            (system, metric): np.array([row[system][metric] for row in asking.values])
            for system in systems
            for metric in METRICS
        }
        names = [(row.tenant_id, row.conversation_id) for row in rows]
        tenant_of = [row.tenant_id for row in rows]
        of_row = [slices.get(row.id, ()) for row in rows]
        return cls(systems, values, statistics.group_numbers(names), tuple(sorted(set(tenant_of))), tenant_of, of_row)

    def where(self, column: Columns, chosen: Sequence[bool]) -> Columns:
        """The column with everything else unknown."""
        return np.where(np.array(chosen), column, math.nan)


def system_metrics(table: MetricTable, config: EvaluateConfig) -> Json:
    """Each system's metrics with their intervals."""
    keys = list(table.values)
    columns = np.column_stack([table.values[key] for key in keys])
    found = statistics.bootstrap_means(columns, table.conversations, config.draws, config.seed)
    out: Json = {system: {} for system in table.systems}
    for (system, metric), estimate in zip(keys, found, strict=True):
        out[system][metric] = {**estimate._asdict(), "how": METRICS[metric].how}
    return out


def paired_results(table: MetricTable, config: EvaluateConfig) -> Json:
    """Each pair's differences, overall and by tenant, with Holm's correction over tenants."""
    pairs = [(one, other) for one, other in PAIRS if one in table.systems and other in table.systems]
    places = ["", *table.tenants]
    keys = [(pair, place, metric) for pair in pairs for place in places for metric in COMPARED]
    columns = [_difference(table, *key) for key in keys]
    found = statistics.paired_differences(np.column_stack(columns), table.conversations, config.draws, config.seed)
    by_key = {key: result._asdict() for key, result in zip(keys, found, strict=True)}
    return {f"{pair[0]}_vs_{pair[1]}": _pair(by_key, pair, table.tenants) for pair in pairs}


def _difference(table: MetricTable, pair: tuple[str, str], tenant: str, metric: str) -> Columns:
    column = table.values[pair[0], metric] - table.values[pair[1], metric]
    return table.where(column, [one == tenant for one in table.tenant_of]) if tenant else column


def _pair(found: Mapping[Any, Json], pair: tuple[str, str], tenants: Sequence[str]) -> Json:
    def nested(place: str) -> Json:
        first, *others = COMPARED
        return {"metric": first, **found[pair, place, first], **{name: found[pair, place, name] for name in others}}

    adjusted = statistics.holm({t: p for t in tenants if not math.isnan(p := found[pair, t, COMPARED[0]]["p"])})
    by_tenant = {tenant: {**nested(tenant), "p_holm": adjusted.get(tenant)} for tenant in tenants}
    return {**nested(""), "tenants": by_tenant}


def slice_results(table: MetricTable, config: EvaluateConfig) -> Json:
    """Top-1 of each system in each slice, and the candidate's difference to the teacher there."""
    names = sorted({name for names in table.slices_of for name in names})
    out: Json = {}
    for name in names:
        inside = [name in of_row for of_row in table.slices_of]
        columns = np.column_stack([table.where(table.values[system, "top1"], inside) for system in table.systems])
        found = statistics.bootstrap_means(columns, table.conversations, config.draws, config.seed)
        out[name] = {
            "rows": sum(inside),
            "systems": {system: one._asdict() for system, one in zip(table.systems, found, strict=True)},
        }
    return out


def power(table: MetricTable, candidate: str, config: EvaluateConfig) -> Json:
    """How many queries like these would show a difference to the teacher, if there is one."""
    column = _difference(table, (candidate, "teacher"), "", "top1")
    known = column[~np.isnan(column)]
    discordant = float((known != 0).mean()) if len(known) else math.nan
    factor = statistics.clustering_factor(column, table.conversations)
    observed = float(known.mean()) if len(known) else math.nan

    def needed(difference: float) -> Json:
        return {"difference": difference, "queries": statistics.queries_needed(difference, discordant, factor)}

    return {
        "metric": "top1", "queries": len(known), "discordant": discordant, "clustering": factor,
        "observed": needed(observed), "interesting": needed(config.interesting),
    }  # fmt: skip


def judge_agreement(asking: ScoredRows, models: Mapping[str, Json]) -> Json:
    """Who scored, and how far examiner and training judge agree on the same rewrites."""
    both = [
        (values[system]["quality"], score)
        for values, scores in zip(asking.values, asking.judge, strict=True)
        for system, score in scores.items()
        if not math.isnan(values[system]["quality"])
    ]
    names = {role: str(models.get(role, {}).get("model", "unknown")) for role in ("judge", "examiner")}
    agreed = statistics.agreement([one for one, _ in both], [other for _, other in both])
    return {**names, "same_model": names["judge"] == names["examiner"], **agreed._asdict()}


def student_metrics(writing: StudentOutput, config: EvaluateConfig) -> Json:
    """Latency of single rewrites, and the cost at measured throughput and set price."""
    milliseconds = [1000 * seconds for seconds in writing.latencies]
    times = {
        name: {**statistics.quantile(milliseconds, share, config.draws, config.seed)._asdict(), "how": "measured"}
        for name, share in (("latency_p50", 0.5), ("latency_p95", 0.95))
    }
    cost = writing.seconds / len(writing.texts) * 1000 * config.gpu_hour_price / 3600
    return {**times, "cost": {**_alone(cost), "n": len(writing.texts), "how": "measured throughput, set price"}}


def teacher_metrics(report: Json) -> Json:
    """The teacher's cost from the journal, failed calls included; its latency is what the profile says."""
    calls = [row for row in report.get("by_step", []) if row["role"] == "teacher"]
    answered = sum(row["answered"] for row in calls)
    cost = sum(row["cost"] for row in calls) / answered * 1000 if answered else math.nan
    seconds = report.get("models", {}).get("teacher", {}).get("typical_seconds", math.nan)
    return {
        "latency_p50": {**_alone(1000 * seconds), "how": "set"},
        "cost": {**_alone(cost), "n": answered, "how": "measured tokens, set price"},
    }


def _alone(value: float) -> Json:
    """A number without an interval."""
    return {"value": value, "low": None, "high": None}


def notes(
    writings: Mapping[str, StudentOutput], asking: ScoredRows, table: MetricTable, config: EvaluateConfig
) -> list[str]:
    """What a reader must know to read the numbers right."""
    lines = []
    for name, one in writings.items():
        lines.append(f"{name} was timed under the serving code over HTTP, one question at a time, on: {one.machine}.")
        lines.append(
            f"{name} wrote {len(one.texts) / one.seconds:.1f} rewrites a second in batches of {config.batch} on this "
            f"machine; an hour of it is set at {config.gpu_hour_price:g}."
        )
        if one.cut:
            lines.append(f"{one.cut} rewrites of {name} were cut at the limit.")
        if one.otherwise:
            lines.append(
                f"{one.otherwise} of {len(one.latencies)} timed rewrites of {name} read otherwise than in a batch."
            )
    lines.append("The teacher's latency and prices are settings; its tokens and failed calls are the journal's.")
    lines.append("Costs are in the currency of the prices.")
    if unknown := int(np.isnan(table.values["teacher", "top1"]).sum()):
        lines.append(f"{unknown} rows have no gold passage; for them only the judged numbers speak.")
    if np.isnan(table.values["teacher", "judged_top1"]).all():
        lines.append("The RAG service scores against the query, not the need: its scores are left out.")
    if asking.unexamined:
        said = ", ".join(f"{reason} {count}" for reason, count in asking.unexamined.most_common())
        lines.append(f"Rewrites that the examiner gave no score, left out of the means: {said}.")
    return lines
