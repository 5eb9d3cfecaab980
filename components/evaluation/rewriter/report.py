"""Build the rewriter's report from evaluation.json, predictions and training logs. It computes no new number."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import orjson

from components.evaluation.rewriter.measures import (
    JUDGE,
    JUDGED_METRICS,
    LABEL_METRICS,
    METRICS,
    OUTSIDERS,
    SYSTEM_METRICS,
    metrics_by,
)
from qinglan.evaluation.gates.evaluation_file import Json, read_predictions
from qinglan.evaluation.gates.leaks import describe_leaks
from qinglan.evaluation.gates.rewriter_gate import (
    FIRST_IN_WORDS,
    UNGATED_METRICS,
    By,
    GateConfig,
    decided_by,
    loss_ps,
    shown_losses,
)
from qinglan.evaluation.gates.verdict import EvaluationNumbers
from qinglan.evaluation.inflation import describe
from qinglan.evaluation.metrics import Metric, is_number
from qinglan.evaluation.pages import report as kernel
from qinglan.evaluation.question_kinds import KINDS
from qinglan.evaluation.stage_gain import StageGain
from qinglan.pages.curves import rows_curve

NAMES = {"plain": "no rewrite", "history": "question + history", "teacher": "teacher", "sft": "SFT", "rl": "RL"}
COLOURS = {
    "no rewrite": "#9aa3ad",
    "question + history": "#b8a06a",
    "teacher": "#7a4fa3",
    "SFT": "#5b8db8",
    "RL": "#1f5fa8",
}
STAND_IN_NOTE = (
    "The teacher was a stand-in, which puts words of the knowledge base together: figures and model show that the "
    "machinery works, and nothing about a real teacher. "
)
NO_ROWS = "no rows"
RANKED = ("top1", "ndcg", "recall")
SHORT = (*RANKED, "quality", "invented")
"""Metrics in the table at the end of a run's output. `invented` is one of them because it can get worse while the
others do not."""

PLAN = ("quality", "top1", "latency_p50", "cost")
TOP1 = METRICS["top1"]
GAINS = {"sft": "SFT on the teacher's further rows, over SFT without", "ppo": "the best step of PPO, over SFT"}
"""Description of each training's gain on dev, by the name of the training's log."""

CURVES = ("loss", "eval_loss", "avg_reward", "gold_dev", "win_rate", "kl", "entropy", "length")
"""Metrics in a training's log that the report draws as curves over steps."""

EXAMPLE_KINDS = ("won", "lost", "still failing")
Blocks = Iterator[kernel.Block]


def to_markdown(evaluation: Json) -> str:
    return kernel.to_markdown(build_report(evaluation))


def to_short_markdown(evaluation: Json) -> str:
    """Return the verdict, its reasons and a table of the systems by a few metrics, as printed at the end of a run."""
    metrics = metrics_by(_decided_by(evaluation))
    table = kernel.levels_table(_systems(evaluation), {name: metrics[name] for name in SHORT})._replace(brief=True)
    reasons = list(evaluation["verdict"]["reasons"])
    if not evaluation["verdict"]["promote"]:  # a promotion's reasons name these losses
        pair = evaluation["paired"].get(f"{evaluation['candidate']}_vs_teacher", {})
        for name in UNGATED_METRICS:
            gap, metric = pair.get(name) or {}, METRICS[name]
            if is_number(gap.get("high")) and gap["high"] < 0:
                change = f"{metric.difference(gap['difference'])} {metric.difference_interval(gap)}"
                reasons.append(f"Below the teacher too: {metric.name}, {change}.")
    return kernel.to_short_markdown(headline(evaluation), reasons, table)


def _decided_by(evaluation: Json) -> By:
    return decided_by(EvaluationNumbers(evaluation))


def _systems(evaluation: Json) -> dict[str, Json]:
    return {NAMES[name]: levels for name, levels in evaluation["systems"].items()}


def build_report(
    evaluation: Json,
    examples: Mapping[str, Sequence[Json]] | None = None,
    training: Mapping[str, Sequence[str]] | None = None,
    gains: Mapping[str, StageGain] | None = None,
) -> kernel.Report:
    """Build the report. `examples` holds rows by kind, `training` the curves of each training, and `gains` the gain
    of each training on dev."""
    counts, settings, systems = evaluation["counts"], evaluation["settings"], _systems(evaluation)
    by = _decided_by(evaluation)
    metrics = metrics_by(by)
    tested, judged = "locked questions", counts.get("judged", 0)
    if folds := evaluation.get("cross_fitted", {}).get("folds"):
        tested = f"cross-fitted questions, each rewritten by one of {folds} models that did not learn from it,"
    taught = STAND_IN_NOTE if settings.get("stand_in_teacher") else ""
    lead = (
        f"{taught}{counts['rows']:,} {tested} in {counts['conversations']:,} conversations, "
        f"{counts['labelled']:,} with gold passages"
        f"{f', {judged:,} judged by the examiner instead' if judged else ''}, {counts['examined']:,} examined. "
        f"{describe_leaks(evaluation.get('leaks'))}"
    )
    bars = [kernel.bars(systems, name, metrics[name], COLOURS) for name in (*RANKED, "quality")]
    curves = [
        kernel.Figures(figures, grid=True, title=f"{NAMES.get(stage, stage.upper())}, by step")
        for stage, figures in (training or {}).items()
    ]
    judges = [judges_line(evaluation["agreement"]), *inflation_lines(evaluation.get("inflation", {}))]
    blind = kernel.Text("The blind sample is for people: fill it in, and read it back with its key.")
    sections: dict[str, Iterable[kernel.Block]] = {
        "What the plan expects, and what was measured": _plan(evaluation, metrics),
        "Who is better than whom": _pairs(evaluation, metrics),
        "Every system": [
            kernel.Figures(bars),
            kernel.levels_table(systems, metrics | SYSTEM_METRICS)._replace(brief=True),
        ],
        "Rows without gold": _by_labels(evaluation, by),
        f"Kinds of questions: {FIRST_IN_WORDS[by]}": _kinds(evaluation),
        f"Properties of the sample: {FIRST_IN_WORDS[by]}": _slices(evaluation),
        "Queries side by side": _examples(evaluation["candidate"], by, examples or {}),
        "Training": [*_gains(gains or {}), *curves],
        "The judges": [*(kernel.Text(line, terminal=True) for line in judges), blind],
    }
    notes = [
        "Every system's query went through the same service with the same threshold, "
        f"{settings['retrieval']['score_threshold']}; passages were scored against the row's fixed need.",
        f"Intervals: {settings['draws']:,} bootstrap draws of whole conversations. p: {settings['draws']:,} sign "
        f"flips of whole conversations. Seed {settings['seed']}.",
    ]
    return kernel.evaluation_report(evaluation, headline(evaluation), lead, sections, notes)


def _gains(gains: Mapping[str, StageGain]) -> Blocks:
    """Yield a table of each training's gain on dev, by which the run decided to use the trained model or not."""
    header = ["on dev", "rows", "measure", "before", "after", "gain, points", "95 %", "taken"]
    rows = []
    for name, gain in gains.items():
        figures = [f"{gain.before:.3f}", f"{gain.after:.3f}", f"{100 * gain.gain:+.1f}"]
        interval = " to ".join(f"{100 * end:+.1f}" for end in gain.interval or ())
        taken = "yes" if gain.taken else "no: the run went on without it"
        rows.append([GAINS[name], f"{gain.rows:,}", gain.measure, *figures, interval, taken])
    if rows:
        yield kernel.Table(header, rows, terminal=True)


def headline(evaluation: Json) -> str:
    name = NAMES.get(str(evaluation.get("candidate")), "the candidate")
    if not evaluation["verdict"]["promote"]:
        return f"Hold: {name} stays where it is."
    if _decided_by(evaluation) == "gold":
        right, judged = "gold", ""
    else:
        right, judged = "right", " Judged by a model, not gold alone."
    return (
        f"Promote: {name} finds the {right} passage first more often than its teacher; nDCG and recall are no "
        f"worse.{judged}"
    )


def _plan(evaluation: Json, metrics: Mapping[str, Metric]) -> Blocks:
    """Yield a table with the plan's expected figures (its part 6) beside the measured figures."""
    rows = []
    for name in PLAN:
        metric = {**metrics, **SYSTEM_METRICS}[name]
        row: list[str | kernel.Cell] = [metric.name]
        for system, expected in evaluation["expected"].items():
            level = evaluation["systems"].get(system, {}).get(name, {})
            assumed = " (assumed)" if level.get("how") == kernel.ASSUMED else ""
            value = kernel.Cell(f"{metric.number(level.get('value'))}{assumed}", metric.interval(level), strong=True)
            row += [metric.number(expected.get(name)), value]
        rows.append(row)
    header = ["", *(word for name in evaluation["expected"] for word in (f"{NAMES[name]}, expected", "measured"))]
    yield kernel.Table(header, rows, terminal=True, brief=True)
    yield kernel.Text(
        "Expected: the plan's figures for a large model on graphics processors, in dollars. Measured: here, in "
        f"{evaluation['currency'] or 'the currency of the prices'}; brackets hold 95 % intervals. “assumed” "
        "is a setting, not a measurement."
    )


def _pairs(evaluation: Json, metrics: Mapping[str, Metric]) -> Blocks:
    paired = {pair_name(pair): gap for pair, gap in evaluation["paired"].items()}
    for name in RANKED:
        gaps = {pair: gap if name == "top1" else gap[name] for pair, gap in paired.items()}
        caption = f"{metrics[name].name}: difference in points, 95 % interval over conversations"
        yield kernel.Figures([kernel.forest(metrics[name].name, gaps, metrics[name])], caption)
    yield kernel.gaps_table(f"{metrics['top1'].name}, points", ((pair, gap, TOP1) for pair, gap in paired.items()))
    pair = f"{evaluation['candidate']}_vs_teacher"
    by_metric = evaluation["paired"].get(pair, {}).items()
    rows = ((metrics[name].name, gap, metrics[name]) for name, gap in by_metric if name in metrics)
    yield kernel.gaps_table(pair_name(pair), rows, f"{pair_name(pair)}, by the other metrics")
    yield from _power(evaluation["power"])
    for pair, gap in paired.items():
        if len(gap["tenants"]) > 1:
            rows = (
                (f"{tenant}: {metrics[name].name}", its if name == "top1" else its[name], metrics[name])
                for tenant, its in gap["tenants"].items()
                for name in RANKED
            )
            yield kernel.gaps_table("", rows, f"{pair}, by tenant", terminal=False)


def pair_name(pair: str) -> str:
    first, second = (NAMES.get(name, name) for name in pair.split("_vs_"))
    return f"{first} − {second}"


def _power(power: Json) -> Blocks:
    observed, interesting = power["observed"], power["interesting"]
    if observed["queries"] or interesting["queries"]:
        hint = f"; to show the {TOP1.difference(observed['difference'])} seen here, {observed['queries'] or 0:,}"
        yield kernel.Text(
            f"Power: the two differ on {TOP1.number(power['discordant'])} of the queries, and alike turns cost a "
            f"factor of {power['clustering'] or 1:.2f}. To show {TOP1.difference(interesting['difference'])} points "
            f"takes about {interesting['queries'] or 0:,} queries{hint if observed['queries'] else ''}. "
            f"There were {power['queries']:,}."
        )


def _by_labels(evaluation: Json, by: By) -> Blocks:
    """Yield the figures of rows without gold, measured by the examiner's grades or by judges' labels. Yields nothing
    if there are neither grades nor labels."""
    if by == "labels":
        metrics, compared = JUDGED_METRICS, ("gold_top1", "pooled_top1")
        words = (
            "The examiner judged these rows, not people, and the verdict reads its grades. It graded each system's "
            "first passage; a passage that nobody judged is left out, or counts as irrelevant where the row says so."
        )
    elif "labelled_top1" in evaluation["systems"]["teacher"]:
        metrics, compared = LABEL_METRICS, ("labelled_top1", "condensed_top1")
        words = (
            "Judges labelled these passages, not people; no verdict reads these figures. A passage that nobody "
            "judged may be relevant or not: it counts as irrelevant, or is left out where the row says so."
        )
    else:
        return
    yield kernel.Text(words, terminal=True)
    yield kernel.levels_table(_systems(evaluation), metrics)
    for name in compared:
        gaps = ((pair_name(pair), gap[name], metrics[name]) for pair, gap in evaluation["paired"].items())
        yield kernel.gaps_table(f"{metrics[name].name}, points", gaps)


def _kinds(evaluation: Json) -> Blocks:
    """Yield a table of the teacher's and the candidate's top-1 for each kind of question. Its last column says if a
    loss of the candidate is statistically shown."""
    gate = GateConfig.parse(evaluation["settings"]["gate"], "settings.gate")
    numbers, rows = EvaluationNumbers(evaluation), []
    ps, shown = loss_ps(numbers, gate), shown_losses(numbers, gate)
    for kind, part in evaluation["kinds"].items():
        gap = part["difference"]
        if not part["rows"]:
            rows.append([kind, "0", "", "", "", NO_ROWS])
            continue
        if kind not in ps:
            loss = "too few questions"
        elif kind in shown:
            loss = "shown"
        elif gap["low"] >= -gate.kind_margin:
            loss = "none"
        else:
            loss = f"open: up to {-100 * gap['low']:.1f} points"
        cells = [kernel.level_cell(part[name], TOP1) for name in ("teacher", "candidate")]
        difference = kernel.Cell(TOP1.difference(gap["difference"]), TOP1.difference_interval(gap), strong=True)
        rows.append([kind, f"{part['rows']:,}", *cells, difference, loss])
    yield kernel.Table(["", "rows", "teacher", NAMES[evaluation["candidate"]], "points", "loss"], rows, terminal=True)
    yield kernel.Text(
        f"{'; '.join(KINDS.values())}. A kind holds the candidate where a loss beyond "
        f"{100 * gate.kind_margin:.1f} points is shown (Holm over all kinds)."
    )


def _slices(evaluation: Json) -> Blocks:
    if slices := evaluation["slices"]:
        rows = [
            [name, f"{part['rows']:,}", *(kernel.level_cell(level, TOP1) for level in part["systems"].values())]
            for name, part in slices.items()
        ]
        yield kernel.Table(["", "rows", *(NAMES[name] for name in evaluation["systems"])], rows)


def draw_examples(predictions: Path, candidate: str, count: int) -> dict[str, list[Json]]:
    """Draw example queries of three kinds: the candidate wins against the teacher, it loses, or both fail."""

    def kind_of(row: Json) -> str | None:
        """Return the kind of an example; None if the right passage is unknown, or if both systems find it first."""
        wins, teacher_wins = (row["systems"][name]["rank"] == 1 for name in (candidate, "teacher"))
        if not (row["gold"] or row.get("grades")) or (wins and teacher_wins):
            return None
        return "won" if wins else "lost" if teacher_wins else "still failing"

    def conversation(row: Json) -> tuple[str, str]:
        return row["tenant_id"], row["conversation_id"]

    return kernel.pick_examples(read_predictions(predictions), EXAMPLE_KINDS, kind_of, count, conversation)


def _examples(candidate: str, by: By, examples: Mapping[str, Sequence[Json]]) -> Blocks:
    right = "gold" if by == "gold" else "right"
    if examples:
        yield kernel.Text(
            f"{NAMES[candidate]} against the teacher, drawn without looking. The number is the {right} passage's "
            "place among the first ten."
        )
    for kind, rows in examples.items():
        names = {name: NAMES[name] for row in rows for name in row["systems"] if name not in ("plain", "history")}
        yield kernel.Examples(f"{NAMES[candidate]}: {kind}", [example(row, names) for row in rows])


def example(row: Json, names: Mapping[str, str]) -> kernel.Example:
    """Turn a line of predictions.jsonl into an example. `names` maps each system to show to its display name."""
    answers = []
    for system, name in names.items():
        rank, rewrite = (row["systems"][system][part] for part in ("rank", "rewrite"))
        outcome = f"place {rank}" if rank else "not found" if row["gold"] or row.get("grades") else ""
        answers.append(kernel.Answer(name, rewrite or "(empty)", outcome, rank == 1))
    return kernel.Example(row["question"], row["history_summary"], answers)


def judges_line(agreement: Json) -> str:
    """Return a sentence on how far the two judges agree, or a sentence that both are the same model."""
    if agreement["same_model"]:
        return f"Examiner and training judge are one model, {agreement['judge']}: its scores are no second opinion."
    judges = f"Examiner {agreement['examiner']} and training judge {agreement['judge']}"
    if agreement["spearman"] is None:
        return f"{judges}: too few rewrites were scored by both to say how far they agree."
    return (
        f"{judges} on {agreement['n']} rewrites: Spearman {agreement['spearman']:.2f}, Kendall "
        f"{agreement['kendall']:.2f}, {agreement['mean_difference']:.2f} points apart on average."
    )


def inflation_lines(results: Mapping[str, Json]) -> Iterator[str]:
    """Yield a sentence for each inflation factor of RL's gain over SFT, or a sentence that no factor is defined."""
    if not results:
        yield "Inflation factor: not defined, since no model here was trained by the reward."
    names = {name: metric.name for name, metric in METRICS.items()} | {JUDGE: "quality, by the training's judge"}
    for name, part in results.items():
        yield f"Inflation factor of RL's gain over SFT, {describe(part, names[name], names[OUTSIDERS[name]])}"


def curves(logs: Mapping[str, Path]) -> dict[str, list[str]]:
    """Return small curves for each training that wrote a log."""
    out = {}
    for stage, folder in logs.items():
        path = folder / "metrics.jsonl"
        rows = [orjson.loads(line) for line in path.read_bytes().splitlines()] if path.is_file() else []
        if shown := [name for name in CURVES if sum(name in row for row in rows) > 1]:
            out[stage] = [rows_curve(name, {"": name}, rows) for name in shown]
    return out
