"""Compute the parts of evaluation.json from every row's numbers, with pure functions."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from components.evaluation.rewriter.config import EvaluateConfig
from components.evaluation.rewriter.measures import JUDGE, OUTSIDERS
from components.evaluation.rewriter.score_systems import ScoredRows
from components.evaluation.rewriter.student_timing import StudentOutput
from qinglan.evaluation import statistics
from qinglan.evaluation.inflation import inflation
from qinglan.evaluation.metric_table import MetricTable, Pair
from qinglan.evaluation.pages.report import ASSUMED
from qinglan.evaluation.question_kinds import KINDS
from qinglan.llm.providers.model_names import same_model
from qinglan.rag.as_asked import searched_as_asked
from qinglan.rag.contract import SAMPLED_SNAPSHOT
from qinglan.rows.rows import ValidatedRewrite

PAIRS = (
    ("rl", "teacher"),
    ("sft", "teacher"),
    ("rl", "sft"),
    ("rl", "plain"),
    ("sft", "plain"),
    ("teacher", "plain"),
    ("history", "teacher"),
)
COMPARED = ("top1", "ndcg", "recall", "judged_top1", "quality")
"""Metrics by which two systems are compared. The first metric decides the verdict; in a pair's result, the other
metrics are nested under their names."""

COMPARED_BY_LABELS = ("labelled_top1", "labelled_ndcg", "condensed_top1", "gold_top1", "pooled_top1", "pooled_ndcg")
"""Metrics that are also compared if rows without gold have labels or were judged. No verdict reads them."""

EXPECTED: dict[str, dict[str, float]] = {
    "teacher": {"quality": 4.8, "top1": 0.85, "latency_p50": 2000.0, "cost": 25.0},
    "sft": {"quality": 4.3, "top1": 0.78, "latency_p50": 850.0, "cost": 2.5},
    "rl": {"quality": 4.6, "top1": 0.88, "latency_p50": 900.0, "cost": 2.8},
}
"""Figures that the plan expects (its part 6)."""

Json = dict[str, Any]


def paired_results(table: MetricTable, tenant_of: Sequence[str]) -> Json:
    """Return each pair's differences, overall and by tenant. The tenants' p-values are corrected by Holm's method."""
    pairs = [pair for pair in PAIRS if set(pair) <= set(table.systems)]
    tenants = sorted(set(tenant_of))
    subsets = {"": None, **{tenant: [name == tenant for name in tenant_of] for tenant in tenants}}
    compared = [name for name in (*COMPARED, *COMPARED_BY_LABELS) if name in table.metrics]
    gaps = table.compare(pairs, compared, subsets)

    def nested(pair: Pair, subset: str) -> Json:
        first, *rest = compared
        return {"metric": first, **gaps[pair, subset, first], **{name: gaps[pair, subset, name] for name in rest}}

    paired = {}
    for pair in pairs:
        adjusted = statistics.holm({tenant: gaps[pair, tenant, COMPARED[0]]["p"] for tenant in tenants})
        by_tenant = {tenant: {**nested(pair, tenant), "p_holm": adjusted.get(tenant)} for tenant in tenants}
        paired["_vs_".join(pair)] = {**nested(pair, ""), "tenants": by_tenant}
    return paired


def by_labels(scored: ScoredRows) -> int:
    """Count the rows without gold that have a passage labelled relevant."""
    return sum("labelled_top1" in next(iter(row.values())) for row in scored.values)


def judged_rows(scored: ScoredRows) -> int:
    """Count the rows without gold whose passages the examiner judged for the gate."""
    return sum("pooled_top1" in next(iter(row.values())) for row in scored.values)


def slice_results(table: MetricTable, slices_of: Sequence[Sequence[str]]) -> Json:
    """Return each system's top-1 in each slice (the questions with the same property in the slices file)."""
    slices = {}
    for name in sorted({name for names in slices_of for name in names}):
        rows = [name in names for names in slices_of]
        slices[name] = {"rows": sum(rows), "systems": table.level_in("top1", rows)}
    return slices


def kind_results(
    table: MetricTable, candidate: str, tenant_of: Sequence[str], kinds_of: Sequence[Sequence[str]]
) -> Json:
    """Return top-1 of teacher and candidate, and their difference, for each kind of question. If there are several
    tenants, each tenant counts as a further kind."""
    several = sorted(set(tenant_of)) if len(set(tenant_of)) > 1 else []
    chosen = {kind: [kind in kinds for kinds in kinds_of] for kind in KINDS}
    chosen |= {f"tenant {tenant}": [name == tenant for name in tenant_of] for tenant in several}
    pair = (candidate, "teacher")
    gaps = table.compare([pair], ["top1"], chosen)
    kinds = {}
    for kind, rows in chosen.items():
        levels = table.level_in("top1", rows)
        kinds[kind] = {
            "rows": sum(rows),
            "teacher": levels["teacher"],
            "candidate": levels[candidate],
            "difference": gaps[pair, kind, "top1"],
        }
    return kinds


def as_asked_note(rows: Sequence[ValidatedRewrite], threshold: float) -> str:
    """Return a sentence that says how many questions were searched as asked, without a rewrite, as in production."""
    count = sum(searched_as_asked(row.plain.own_score, threshold) for row in rows)
    return (
        f"{count} of {len(rows)} questions were searched as they were asked, since their own first passage scores at "
        f"least {threshold:g}, as the RAG service does: no student's rewrite of them counts."
    )


def power(table: MetricTable, candidate: str, interesting: float) -> Json:
    """Return the power analysis: the number of queries needed to show the observed difference to the teacher, and the
    number needed to show the difference `interesting`."""
    spread = table.spread((candidate, "teacher"), "top1")
    return {
        "metric": "top1",
        "queries": spread.queries,
        "discordant": spread.discordant,
        "clustering": spread.clustering,
        "observed": {"difference": spread.mean, "queries": spread.needed(spread.mean)},
        "interesting": {"difference": interesting, "queries": spread.needed(interesting)},
    }


def judge_agreement(scored: ScoredRows, models: Mapping[str, Json]) -> Json:
    """Return the models of examiner and training judge, and how far their scores of the same rewrites agree."""
    both = [
        (values[system]["quality"], score)
        for values, scores in zip(scored.values, scored.judge, strict=True)
        for system, score in scores.items()
        if not math.isnan(values[system]["quality"])
    ]
    names = {role: str(models.get(role, {}).get("model", "unknown")) for role in ("judge", "examiner")}
    agreed = statistics.agreement([score for score, _ in both], [score for _, score in both])
    return {**names, "same_model": same_model(names["judge"], names["examiner"]), **agreed._asdict()}


def inflation_results(table: MetricTable, judge: Sequence[Mapping[str, float]], one_judge: bool) -> Json:
    """Divide RL's gain over SFT by each measure that training optimises by its gain by an independent measure
    (inflation.py). Empty if a model is missing.

    `judge` holds the training judge's scores of each row, by system. If `one_judge` is True, the examiner is the
    training judge, so the judge's scores have no independent measure and are left out.
    """
    pair = ("rl", "sft")
    if not set(pair) <= set(table.systems):
        return {}
    after, before = (np.array([row.get(system, math.nan) for row in judge]) for system in pair)
    gains = {"judged_top1": table.difference(pair, "judged_top1")} | ({} if one_judge else {JUDGE: after - before})
    return {
        name: inflation(
            gain, table.difference(pair, OUTSIDERS[name]), table.conversations, table.draws, table.seed
        )._asdict()
        for name, gain in gains.items()
    }


def student_metrics(student: StudentOutput, config: EvaluateConfig) -> Json:
    """Return the latency of single rewrites, and the cost of 1,000 at the measured throughput and configured
    price."""
    hour = config.gpu_hour_price * config.serving_gpus
    # Seconds per rewrite, times 1,000 rewrites, times the price of a second.
    cost = student.seconds / len(student.texts) * 1000 * hour / 3600
    how = "measured throughput, set price"
    return latencies(student.latencies, config, "measured") | {
        "cost": {**_alone(cost), "n": len(student.texts), "how": how}
    }


def latencies(seconds: Sequence[float], config: EvaluateConfig, how: str) -> Json:
    milliseconds = [1000 * value for value in seconds]
    return {
        name: {**statistics.quantile(milliseconds, share, config.draws, config.seed)._asdict(), "how": how}
        for name, share in (("latency_p50", 0.5), ("latency_p95", 0.95))
    }


def teacher_metrics(report: Json, live_seconds: Sequence[float], config: EvaluateConfig) -> Json:
    """Return the teacher's cost and latency from the gateway's journal. The cost includes failed calls.

    If the teacher was a stand-in, or if no call was live, the latency is the gateway's `typical_seconds`, marked as
    assumed.
    """
    calls = [row for row in report.get("by_step", []) if row["role"] == "teacher"]
    answered = sum(row["answered"] for row in calls)
    cost = sum(row["cost"] for row in calls) / answered * 1000 if answered else math.nan
    if live_seconds and not config.stand_in_teacher:
        times = latencies(live_seconds, config, "the journal's live calls")
    else:
        seconds = report.get("models", {}).get("teacher", {}).get("typical_seconds", math.nan)
        times = {"latency_p50": {**_alone(1000 * seconds), "how": ASSUMED}}
    return {**times, "cost": {**_alone(cost), "n": answered, "how": "measured tokens, set price"}}


def _alone(value: float) -> Json:
    return {"value": value, "low": None, "high": None}


def notes(
    students: Mapping[str, StudentOutput], scored: ScoredRows, table: MetricTable, config: EvaluateConfig
) -> list[str]:
    lines = []
    for name, student in students.items():
        lines.append(
            f"{name} was timed under the serving code over HTTP, one question at a time, on: {student.machine}."
        )
        hour = f"an hour of it is set at {config.gpu_hour_price:g}"
        if (cards := config.serving_gpus) > 1:
            hour = f"an hour is set at {config.gpu_hour_price:g} for each of {cards} GPUs"
        lines.append(
            f"{name} wrote {len(student.texts) / student.seconds:.1f} rewrites a second in batches of {config.batch} "
            f"by {student.engine} on this machine; {hour}."
        )
        if student.cut:
            lines.append(f"{student.cut} rewrites of {name} were cut at the limit.")
        if student.trimmed:
            lines.append(
                f"{student.trimmed} prompts of {name} were without the oldest turns of a history that is longer than "
                "those of its training."
            )
        if student.otherwise:
            lines.append(
                f"{student.otherwise} of {len(student.latencies)} timed rewrites of {name} read otherwise than in a "
                "batch."
            )
    if {"sft", "rl"} <= students.keys() and students["rl"].texts == students["sft"].texts:
        lines.append(
            "RL and SFT wrote the same in every row. Where every checkpoint of ppo stands below the SFT model on "
            "dev, ppo hands on the SFT model."
        )
    if scored.teacher_seconds and not config.stand_in_teacher:
        lines.append(
            f"The teacher's latency is that of {len(scored.teacher_seconds)} live calls in the journal, several at "
            "once; its tokens and failed calls are the journal's too. Prices are settings."
        )
    else:
        lines.append(
            "The teacher's latency is assumed, not measured, and prices are settings; its tokens and failed calls "
            "are the journal's."
        )
    lines.append("Costs are in the currency of the prices.")
    if judged := judged_rows(scored):
        lines += [
            f"{judged} rows have no gold passage. The examiner graded the first passage of every system in them "
            "against the row's need, once for each passage and without knowing whose it was.",
            "nDCG@10 and recall@10 of these rows know only those passages: others are taken out of the list.",
            "Where the label stage had rows to label, the examiner confirmed the training's labels too: a mistake "
            "that it makes again and again can be learned there and praised here. People should check some of the "
            "rows.",
        ]
    elif unknown := table.rows - table.known("teacher", "top1"):
        lines.append(f"{unknown} rows have no gold passage; for them only the judged numbers speak.")
    if not judged and (labelled := by_labels(scored)):
        unjudged = 1 - table.levels()["teacher"]["first_judged"]["value"]
        lines.append(
            f"{labelled} of them have labels by judges, which are not gold: what is measured by them says so, no "
            f"verdict reads it, and nobody judged {unjudged:.0%} of the teacher's first passages."
        )
    if not table.known("teacher", "judged_top1"):
        lines.append("The RAG service scores against the query, not the need: its scores are left out.")
    if any(snapshot.startswith(SAMPLED_SNAPSHOT) for snapshot in scored.snapshots):
        lines.append(
            "The RAG service does not name its knowledge base: a digest of sampled answers stands in, and a change "
            "that they do not show is not noticed."
        )
    if scored.unexamined:
        counts = ", ".join(f"{reason} {count}" for reason, count in scored.unexamined.most_common())
        lines.append(f"Rewrites that the examiner gave no score, left out of the means: {counts}.")
    return lines
