"""Compare the runs of candidate teachers on the same rows, and recommend one of them in sentences."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Any, Literal, NamedTuple

import orjson

from commands.compare_teachers.config import TeachersConfig
from components.evaluation.rewriter.measures import METRICS, SYSTEM_METRICS
from pipelines.execute.rundir import RunDir
from pipelines.lines.rewriter import RunConfig
from qinglan.evaluation.gates.evaluation_file import write_evaluation
from qinglan.evaluation.metric_table import MetricTable
from qinglan.evaluation.metrics import Metric
from qinglan.evaluation.pages import report as kernel
from qinglan.evaluation.statistics import holm
from qinglan.files.digests import digest
from qinglan.files.files import read_jsonl
from qinglan.llm.call_plan import build_request
from qinglan.llm.config import PaidModel
from qinglan.llm.paid.journal_reader import read_attempts
from qinglan.rows.rows import QuarantinedRow, Question, ValidatedRewrite

Json = dict[str, Any]
PLAIN, P = "plain", 0.05
TOO_MANY_FAILED = 0.2
"""Share of rows without a rewrite above which a teacher is not recommended, at any price."""

FEWEST_CONVERSATIONS = 20
"""Fewest conversations for a conclusion; with fewer, the bootstrap's intervals are too narrow."""

ENOUGH_KNOWN = 0.5
"""Share of rows with gold passages from which on gold decides (`top1`); below it, scores against the need decide
(`judged_top1`)."""

Word = Literal["better", "as good", "not shown", "none"]
STOOD_IN = "Stand-ins answered in the place of every model: the figures show the method, and no real model."


class Recommendation(NamedTuple):
    word: Word
    """better: every other teacher is shown to be worse. as good: the cheapest within the margin. not shown: too few
    rows for a conclusion. none: no teacher gave enough rewrites, or the plain question is better than every
    teacher."""

    take: str
    """Name of the recommended teacher; empty if `word` is none."""

    lines: list[str]


class Score(NamedTuple):
    """A teacher's level of the deciding metric, its cost per 1,000 rewrites, and its share of rows without a
    rewrite."""

    name: str
    value: float
    cost: float
    failed: float


def compare_runs(
    config: RunConfig,
    teachers: TeachersConfig,
    runs: Mapping[str, tuple[RunDir, RunConfig]],
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
    table = MetricTable.of(
        rows, values, {name: METRICS[name] for name in ("top1", "judged_top1")}, config.evaluate.draws,
        config.evaluate.seed,
    )  # fmt: skip
    metric = "top1" if table.known(PLAIN, "top1") >= ENOUGH_KNOWN * table.rows else "judged_top1"
    systems = table.levels()
    ids = {row.id for row in sample}
    for choice in teachers.teachers:
        run, settings = runs[choice.name]
        systems[choice.name] |= _costs(run, settings.gateway.teacher, ids) | {"model": choice.model.model}
    names = list(runs)
    paired = _paired(table, names, metric, teachers.margin)
    scores = [
        Score(name, systems[name][metric]["value"], systems[name]["cost"], systems[name]["failed"]) for name in names
    ]
    advice = recommend(scores, paired, teachers.margin, METRICS[metric])
    return {
        "tenant": config.tenant_id, "systems": systems, "paired": paired, "deciding": metric,
        "margin": teachers.margin, "recommendation": advice._asdict(),
        "currency": config.gateway.teacher.price.currency,
        "counts": {"rows": len(rows), "conversations": table.conversation_count, "without": len(sample) - len(rows)},
        "settings": {"seed": table.seed, "draws": table.draws, "stand_ins": config.stand_ins.teacher},
        "digests": {name: digest(run.shown("validated")) for name, (run, _) in runs.items()},
    }  # fmt: skip


def _row_values(
    row: ValidatedRewrite, validated: Mapping[str, Mapping[str, ValidatedRewrite]]
) -> dict[str, dict[str, float]]:
    """Metrics of a row by system. If a teacher gave no rewrite, the retrieval by the plain question counts for it."""
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
    """A teacher's cost per 1,000 rewrites, median latency in ms, and rows without a rewrite by reason.

    The journal is shared by all teachers: a call is this teacher's if it was sent with the teacher's parameters.
    """
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
        "cost": 1000 * sum(attempt.cost for attempt in attempts) / rewritten if rewritten else math.nan,
        "latency": 1000 * median(seconds) if seconds else math.nan,
        "failed": reasons.total() / len(rows), "reasons": dict(reasons),
    }  # fmt: skip


def _paired(table: MetricTable, names: Sequence[str], metric: str, margin: float) -> dict[str, Json]:
    """Differences on the same rows: between every two teachers, with Holm's correction, and between each teacher and
    the plain question."""
    pairs = [*combinations(names, 2), *((name, PLAIN) for name in names)]
    gaps = table.compare(pairs, [metric], {"": None})
    adjusted = holm({f"{a} − {b}": gaps[(a, b), "", metric]["p"] for a, b in combinations(names, 2)})
    paired = {}
    for a, b in pairs:
        gap, spread = gaps[(a, b), "", metric], table.spread((a, b), metric)
        needed = spread.needed if metric == "top1" else spread.needed_for_mean
        name = f"{a} − {b}"
        paired[name] = {
            "first": a, "second": b, **gap, "p_holm": adjusted.get(name, gap["p"]),
            "needed": needed(spread.mean), "needed_for_margin": needed(margin),
        }  # fmt: skip
    return paired


def recommend(scores: Sequence[Score], paired: Mapping[str, Json], margin: float, metric: Metric) -> Recommendation:
    """Recommend the cheapest teacher that is shown to be less than `margin` worse than the best one. If a still
    cheaper teacher seems to be, but too few rows show it, that one is recommended as `not shown`."""
    able = [score for score in scores if score.failed <= TOO_MANY_FAILED and math.isfinite(score.value + score.cost)]
    left_out = [
        f"{score.name} is left out of the choice: it gave no rewrite for {score.failed:.1%} of the rows, or its "
        "quality or cost is unknown."
        for score in scores
        if score not in able
    ]
    gaps = {(gap["first"], gap["second"]): gap for gap in paired.values()}
    worse_than_plain = [gap["high"] < 0 and gap["p_holm"] < P for (_, second), gap in gaps.items() if second == PLAIN]
    if not able or all(worse_than_plain):
        first = (
            "No teacher's rewrites find as much as the plain question. Change generate.system_prompt, or try other "
            "models."
        )
        return Recommendation("none", "", [first, *left_out])
    best = max(able, key=lambda score: (score.value, -score.cost))  # among equal teachers the cheapest
    within, unclear, lines = [], [], []
    for other in able:
        if other is best:
            continue
        gap = gaps.get((best.name, other.name)) or turned(gaps[other.name, best.name])
        enough = gap["conversations"] >= fewest_conversations(gap, margin)
        if enough and gap["high"] < margin:
            conclusion = f"{other.name} is worse by less than {metric.difference(margin)[1:]}"
            within.append(other)
        elif enough and gap["low"] > 0 and gap["p_holm"] < P:
            conclusion = f"{other.name} is shown to be worse"
        else:
            unclear.append((other, gap))
            conclusion = "no difference is shown"
            if rows := gap["needed_for_margin"]:
                margin_text = metric.difference(margin)[1:]
                conclusion = f"no difference is shown; about {rows:,} rows like these would show one of {margin_text}"
        ends = metric.difference_interval(gap)
        lines.append(f"{best.name} minus {other.name}: {metric.difference(gap['difference'])} {ends}: {conclusion}.")
    take = min([best, *within], key=lambda score: score.cost)
    # A cheaper teacher that is neither shown to be within the margin nor worse: more rows would decide.
    cheaper = [(other, gap) for other, gap in unclear if other.cost < take.cost]
    if cheaper:
        hopeful = [other for other, gap in cheaper if gap["difference"] <= margin]
        take = min(hopeful, key=lambda score: score.cost, default=take)
    word: Word = "not shown" if cheaper or (unclear and not within) else "as good" if within else "better"
    return Recommendation(word, take.name, [*lines, *left_out])


def turned(gap: Json) -> Json:
    """The difference of the same two teachers in the other order."""
    return gap | {"difference": -gap["difference"], "low": -gap["high"], "high": -gap["low"]}


def fewest_conversations(gap: Json, margin: float) -> float:
    """Fewest conversations for a conclusion.

    If none of n conversations differs, the interval has no width, yet up to 3 / n of all may differ at 95 % (the rule
    of three: https://doi.org/10.1001/jama.1983.03330370053031).
    """
    if gap["low"] < gap["high"]:
        return FEWEST_CONVERSATIONS
    return max(FEWEST_CONVERSATIONS, round(3 / margin, 6)) if margin else math.inf


def write_comparison(comparison: Json, root: Path) -> Json:
    """Write comparison.json and its page; returns the content of the file."""
    written = write_evaluation(root / "comparison.json", comparison)
    kernel.write_report(build_report(written), root / "comparison.html")
    return written


def print_comparison(comparison: Json, root: Path) -> None:
    from qinglan.terminal.console import Console, markdown

    console = Console()
    console.print(markdown(kernel.to_markdown(build_report(comparison), notes=True)))
    console.print(f"{root / 'comparison.html'}  {root / 'comparison.json'}", highlight=False, soft_wrap=True)


def headline(word: Word, teacher: str) -> str:
    match word:
        case "better":
            return f"Take {teacher}: better than every other."
        case "as good":
            return f"Take {teacher}: as good as any within the margin, and the cheapest."
        case "not shown":
            return f"Take {teacher}, for now: no difference is shown."
        case _:
            return "None of them can be taken."


def build_report(comparison: Json) -> kernel.Report:
    counts, taken, systems = comparison["counts"], comparison["recommendation"], comparison["systems"]
    metric, currency, settings = METRICS[comparison["deciding"]], comparison["currency"], comparison["settings"]
    levels = kernel.levels_table(systems, {name: METRICS[name] for name in ("top1", "judged_top1")})
    paid: dict[str, Callable[[Json], str]] = {
        "model": lambda levels: levels["model"],
        f"cost per 1,000 rewrites given, {currency}": lambda levels: SYSTEM_METRICS["cost"].number(levels["cost"]),
        "a live call, median": lambda levels: SYSTEM_METRICS["latency_p50"].number(levels["latency"]),
        "rows without a rewrite": lambda levels: _reasons(levels["reasons"]),
    }
    rows = [
        [title, *("" if name == PLAIN else text(levels) for name, levels in systems.items())]
        for title, text in paid.items()
    ]
    stood_in = [STOOD_IN] if settings["stand_ins"] else []
    return kernel.Report(
        headline(taken["word"], taken["take"]),
        taken["word"] in ("better", "as good"),
        f"{counts['rows']:,} rows in {counts['conversations']:,} conversations of {comparison['tenant']}, drawn from "
        f"{counts['training_rows']:,} rows of training; {counts['locked_rows']:,} rows of dev and test were not "
        f"looked at. Decided by: {metric.name}.",
        [*stood_in, *taken["lines"]],
        [
            kernel.Section("Each teacher", [levels._replace(rows=[*levels.rows, *rows])]),
            kernel.Section(
                "Who is better than whom",
                [kernel.gaps_table(metric.name, ((pair, gap, metric) for pair, gap in comparison["paired"].items()))],
            ),
        ],
        [
            "A row without a rewrite counts as the plain question, against the teacher that gave none.",
            "Cost is the journal's: every attempt counts, and one without an outcome counts at its worst.",
            f"Intervals: {settings['draws']:,} bootstrap draws of whole conversations; p: as many sign flips of "
            f"whole conversations, corrected by Holm over pairs of teachers. Seed {settings['seed']}.",
        ],
        comparison["digests"],
    )


def _reasons(reasons: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {reason}" for reason, count in reasons.items()) or "0"
