"""Compare candidate teachers in pairs on the same rows, and recommend one of them."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from statistics import median
from typing import Any, Literal, NamedTuple

import orjson

from commands.compare_teachers.config import TeachersConfig
from components.evaluation.rewriter.measures import METRICS, SYSTEM_METRICS
from pipelines.execute.rundir import RunDir
from pipelines.lines.rewriter import RunConfig
from qinglan.evaluation.metric_table import MetricTable
from qinglan.evaluation.pages.report import Cell, Table, gaps_table, level_cell
from qinglan.evaluation.statistics import holm
from qinglan.files.files import read_jsonl
from qinglan.llm.call_plan import build_request
from qinglan.llm.config import PaidModel
from qinglan.llm.paid.journal_reader import read_attempts
from qinglan.rows.rows import QuarantinedRow, Question, ValidatedRewrite

Json = dict[str, Any]
Run = tuple[RunDir, RunConfig]
PLAIN, P = "plain", 0.05
TOO_MANY_FAILED = 0.2
"""Share of rows without a rewrite above which a teacher is not recommended, at any price."""

FEWEST_CONVERSATIONS = 20
"""Fewest conversations for a conclusion; with fewer, the bootstrap's intervals are too narrow."""

ENOUGH_KNOWN = 0.5
"""Least share of rows with gold passages for a decision by gold (`top1`). With fewer, scores against the need decide
(`judged_top1`)."""

STOOD_IN = "Stand-ins answered in the place of every model: the figures show the method, and no real model."
Word = Literal["better", "as good", "not shown", "none"]


class Recommendation(NamedTuple):
    word: Word
    """better: every other teacher is shown to be worse. as good: the cheapest within the margin. not shown: too few
    rows for a conclusion. none: no teacher gave enough rewrites, or the plain question is better than every
    teacher."""

    take: str = ""
    """Name of the recommended teacher; empty if `word` is none."""

    rows: int | None = None
    """Number of rows that would show a difference of the margin; None if unknown, or if no comparison is open."""


def compare_runs(
    config: RunConfig,
    teachers: TeachersConfig,
    runs: Mapping[str, Run],
    sample: Sequence[Question],
) -> Json:
    """Build the content of comparison.json from the finished runs."""
    validated = {
        name: {row.id: row for _, row in read_jsonl(run.shown("validated"), ValidatedRewrite)}
        for name, (run, _) in runs.items()
    }
    known = {id: row for rows in validated.values() for id, row in rows.items()}
    rows = [known[row.id] for row in sample if row.id in known]
    values = [_row_values(row, validated) for row in rows]
    metrics = {name: METRICS[name] for name in ("top1", "judged_top1")}
    table = MetricTable.of(rows, values, metrics, config.evaluate.draws, config.evaluate.seed)
    metric = "top1" if table.known(PLAIN, "top1") >= ENOUGH_KNOWN * table.rows else "judged_top1"
    systems = table.levels()
    for choice in teachers.teachers:
        run, settings = runs[choice.name]
        costs = _costs(run, settings.gateway.teacher, {row.id for row in sample})
        systems[choice.name] |= costs | {"model": choice.model.model}
    paired = _paired(table, best_first(systems, metric), metric, teachers.margin)
    return {
        "tenant": config.tenant_id, "systems": systems, "paired": paired, "deciding": metric,
        "margin": teachers.margin, "recommendation": recommend(systems, paired, metric, teachers.margin)._asdict(),
        "currency": config.gateway.teacher.price.currency,
        "counts": {"rows": len(rows), "conversations": table.conversation_count, "without": len(sample) - len(rows)},
        "settings": {"seed": table.seed, "draws": table.draws, "stand_ins": config.stand_ins.teacher},
    }  # fmt: skip


def _row_values(
    row: ValidatedRewrite, validated: Mapping[str, Mapping[str, ValidatedRewrite]]
) -> dict[str, dict[str, float]]:
    """Return a row's metrics by system. If a teacher gave no rewrite, the retrieval by the plain question counts."""
    retrievals = {PLAIN: row.plain}
    for name, rows in validated.items():
        retrievals[name] = rows[row.id].rewritten if row.id in rows else row.plain
    by_need = row.scored_against == "need"
    return {
        name: {
            "top1": float(retrieval.gold_rank == 1) if row.gold else math.nan,
            "judged_top1": retrieval.top1_score if by_need else math.nan,
        }
        for name, retrieval in retrievals.items()
    }


def _costs(run: RunDir, model: PaidModel, rows: set[str]) -> Json:
    """Return a teacher's cost per 1,000 rewrites, median latency in ms, and rows without a rewrite by reason."""
    # All teachers share the journal: a call is this teacher's if it was sent with this teacher's parameters.
    parameters = build_request(model, [], None)
    attempts = [
        attempt
        for attempt in read_attempts(run.journal, "generate", "teacher")
        if attempt.row in rows and {**orjson.loads(attempt.request), "messages": []} == parameters
    ]
    reasons = Counter(row.reason for _, row in read_jsonl(run.shown("generate_quarantine"), QuarantinedRow))
    rewritten = len(rows) - reasons.total()
    seconds = [attempt.seconds for attempt in attempts if attempt.outcome == "answered" and attempt.seconds]
    return {
        "cost": 1000 * sum(attempt.cost for attempt in attempts) / rewritten if rewritten else math.inf,
        "latency": 1000 * median(seconds) if seconds else math.nan,
        "failed": reasons.total() / len(rows), "reasons": dict(reasons),
    }  # fmt: skip


def _paired(table: MetricTable, names: Sequence[str], metric: str, margin: float) -> dict[str, Json]:
    """Compare on the same rows every two teachers, with Holm's correction, and each teacher with the question."""
    # The better teacher comes first in each pair, by the order of `names`: `recommend` looks pairs up in this order.
    pairs = [*combinations(names, 2), *((name, PLAIN) for name in names)]
    gaps = table.compare(pairs, [metric], {"": None})
    adjusted = holm({f"{a} − {b}": gaps[(a, b), "", metric]["p"] for a, b in combinations(names, 2)})
    paired = {}
    for a, b in pairs:
        gap, spread, name = gaps[(a, b), "", metric], table.spread((a, b), metric), f"{a} − {b}"
        needed = spread.needed(margin) if metric == "top1" else spread.needed_for_mean(margin)
        p_value = adjusted.get(name, gap["p"])
        paired[name] = {"first": a, "second": b, **gap, "p_holm": p_value, "needed_for_margin": needed}
    return paired


def best_first(systems: Json, metric: str) -> list[str]:
    """Sort the teachers by the metric, best first; of two equal teachers, the cheaper one comes first."""
    names = [name for name in systems if name != PLAIN]
    return sorted(names, key=lambda name: (-systems[name][metric]["value"], systems[name]["cost"]))


def recommend(systems: Json, paired: Mapping[str, Json], metric: str, margin: float) -> Recommendation:
    """Recommend the cheapest teacher that is shown to be less than `margin` worse than the best one. If the rows
    leave this open for a cheaper teacher (or for any, if only the best one qualifies), the word is `not shown`."""
    names = best_first(systems, metric)
    able = [name for name in names if systems[name]["failed"] <= TOO_MANY_FAILED]
    against_plain = [paired[f"{name} − {PLAIN}"] for name in names]
    if not able or all(gap["high"] < 0 and gap["p_holm"] < P for gap in against_plain):
        return Recommendation("none")
    best, *rest = able
    within, unclear = [best], []
    for name in rest:
        gap = paired[f"{best} − {name}"]
        enough = gap["conversations"] >= fewest_conversations(gap, margin)
        if enough and gap["high"] < margin:
            within.append(name)
        elif not (enough and gap["low"] > 0 and gap["p_holm"] < P):
            unclear.append(name)
    take = min(within, key=lambda name: systems[name]["cost"])
    # An open comparison with a more expensive teacher does not matter if a cheaper one is shown to be as good.
    undecided = [name for name in unclear if len(within) == 1 or systems[name]["cost"] < systems[take]["cost"]]
    if undecided:
        needed = [rows for name in undecided if (rows := paired[f"{best} − {name}"]["needed_for_margin"])]
        return Recommendation("not shown", take, max(needed, default=None))
    return Recommendation("as good" if len(within) > 1 else "better", take)


def fewest_conversations(gap: Json, margin: float) -> float:
    """Return the fewest conversations that allow a conclusion.

    If none of n conversations differs, the interval has no width, yet up to 3 / n of all may differ at 95 % (the rule
    of three: https://doi.org/10.1001/jama.1983.03330370053031).
    """
    if gap["low"] < gap["high"]:
        return FEWEST_CONVERSATIONS
    return max(FEWEST_CONVERSATIONS, round(3 / margin, 6)) if margin else math.inf


def recommendation_sentence(recommended: Recommendation, margin: str) -> str:
    word, take, rows = recommended
    if word == "none":
        return (
            "None of them can be taken: too many rows got no rewrite, or the plain question finds more. Change "
            "generate.system_prompt, or try other models."
        )
    if word == "not shown":
        if rows:
            return (
                f"Take {take}, for now: no difference is shown. {rows:,} rows like these would show one of {margin}."
            )
        return f"Take {take}, for now: no difference is shown."
    if word == "as good":
        return f"Take {take}: as good as any within the margin, and the cheapest."
    return f"Take {take}: better than every other."


def print_comparison(comparison: Json) -> None:
    """Print the recommendation, a table of the teachers, and the table of paired differences."""
    from qinglan.terminal.console import Console, markdown

    metric, counts = METRICS[comparison["deciding"]], comparison["counts"]
    gaps = gaps_table(metric.name, ((pair, gap, metric) for pair, gap in comparison["paired"].items()))
    recommended = Recommendation(**comparison["recommendation"])
    parts = [
        f"**{recommendation_sentence(recommended, metric.difference(comparison['margin'])[1:])}**",
        *([STOOD_IN] if comparison["settings"]["stand_ins"] else []),
        _teachers_table(comparison).markdown(),
        gaps.markdown(),
        f"{counts['rows']:,} rows in {counts['conversations']:,} conversations of {comparison['tenant']}, drawn from "
        f"{counts['training_rows']:,} rows of training; {counts['locked_rows']:,} rows of dev and test were not "
        f"looked at. Decided by: {metric.name}.",
    ]
    Console().print(markdown("\n\n".join(parts)))


def _teachers_table(comparison: Json) -> Table:
    deciding, rows = comparison["deciding"], list[list[str | Cell]]()
    cost, latency = SYSTEM_METRICS["cost"], SYSTEM_METRICS["latency_p50"]
    for name, levels in comparison["systems"].items():
        row: list[str | Cell] = [Cell(name, levels.get("model", "")), level_cell(levels[deciding], METRICS[deciding])]
        if name != PLAIN:
            lost = ", ".join(f"{count} {reason}" for reason, count in levels["reasons"].items()) or "0"
            row += [cost.number(levels["cost"]), latency.number(levels["latency"]), lost]
        rows.append([*row, *[""] * (5 - len(row))])
    cost_title = f"cost per 1,000 rewrites given, {comparison['currency']}"
    header = ["", METRICS[deciding].name, cost_title, "a live call, median", "rows without a rewrite"]
    return Table(header, rows, terminal=True)
