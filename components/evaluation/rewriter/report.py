"""The rewriter's report from evaluation.json, predictions and training logs. It adds no number of its own."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from components.evaluation.rewriter.inflation import inflation_lines
from components.evaluation.rewriter.measures import JUDGED_METRICS, LABEL_METRICS, METRICS, SYSTEM_METRICS, metrics_by
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
from qinglan.evaluation.metrics import Metric, is_number
from qinglan.evaluation.pages import report as kernel
from qinglan.evaluation.question_kinds import KINDS
from qinglan.evaluation.stage_gain import StageGain

NAMES = {"plain": "no rewrite", "history": "question + history", "teacher": "teacher", "sft": "SFT", "rl": "RL"}
COLOURS = {"no rewrite": "#9aa3ad", "question + history": "#b8a06a", "teacher": "#7a4fa3", "SFT": "#5b8db8",
           "RL": "#1f5fa8"}  # fmt: skip
STAND_IN_NOTE = (
    "The teacher was a stand-in, which puts words of the knowledge base together: figures and model show that the "
    "machinery works, and nothing about a real teacher. "
)
NO_ROWS = "no rows"
SHORT = ("top1", "ndcg", "recall", "quality", "invented")
"""Metrics on the screen that ends a run; a model may get worse at the last without a loss at the others."""

PLAN = ("quality", "top1", "latency_p50", "cost")
TOP1 = METRICS["top1"]
GAINS = {"sft": "SFT on the teacher's further rows, over SFT without", "ppo": "the best step of PPO, over SFT"}
"""Names of the trainings' gains on dev, by log."""

EXAMPLE_KINDS = ("won", "lost", "still failing")
Blocks = Iterator[kernel.Block]


def to_markdown(evaluation: Json) -> str:
    """The evaluation for a terminal or a log."""
    return kernel.to_markdown(build_report(evaluation))


def to_short_markdown(evaluation: Json) -> str:
    """The verdict, its reasons and the systems by a few metrics: what ends a run's output."""
    systems = {NAMES[name]: levels for name, levels in evaluation["systems"].items()}
    metrics = metrics_by(decided_by(EvaluationNumbers(evaluation)))
    table = kernel.levels_table(systems, {name: metrics[name] for name in SHORT})._replace(brief=True)
    verdict = evaluation["verdict"]
    worse = [] if verdict["promote"] else list(_below_teacher(evaluation))
    return kernel.to_short_markdown(headline(evaluation), [*verdict["reasons"], *worse], table)


def _below_teacher(evaluation: Json) -> Iterator[str]:
    """Metrics in which the held candidate is surely below the teacher and which no reason of the gate names."""
    pair = evaluation["paired"].get(f"{evaluation['candidate']}_vs_teacher", {})
    for name in UNGATED_METRICS:
        gap, metric = pair.get(name) or {}, METRICS[name]
        if is_number(gap.get("high")) and gap["high"] < 0:
            change = f"{metric.difference(gap['difference'])} {metric.difference_interval(gap)}"
            yield f"Below the teacher too: {metric.name}, {change}."


def build_report(
    evaluation: Json,
    examples: Mapping[str, Sequence[Json]] | None = None,
    training: Mapping[str, Sequence[str]] | None = None,
    gains: Mapping[str, StageGain] | None = None,
) -> kernel.Report:
    """The report; examples by kind, and each training's curves and gain on dev, where there are any."""
    counts, settings = evaluation["counts"], evaluation["settings"]
    taught = STAND_IN_NOTE if settings.get("stand_in_teacher") else ""
    systems = {NAMES[name]: levels for name, levels in evaluation["systems"].items()}
    by = decided_by(EvaluationNumbers(evaluation))
    metrics = metrics_by(by)
    bars = [kernel.bars(systems, name, metrics[name], COLOURS) for name in ("top1", "ndcg", "recall", "quality")]
    curves = [
        kernel.Figures(figures, grid=True, title=f"{NAMES.get(stage, stage.upper())}, by step")
        for stage, figures in (training or {}).items()
    ]
    judges = kernel.Text(judges_line(evaluation["agreement"]), terminal=True)
    inflation = (kernel.Text(line, terminal=True) for line in inflation_lines(evaluation.get("inflation", {})))
    judged = counts.get("judged", 0)
    blind = kernel.Text("The blind sample is for people: fill it in, and read it back with its key.")
    levels = kernel.levels_table(systems, metrics | SYSTEM_METRICS)._replace(brief=True)
    return kernel.Report(
        headline(evaluation),
        evaluation["verdict"]["promote"],
        f"{taught}{counts['rows']:,} {tested_questions(evaluation)} in {counts['conversations']:,} conversations, "
        f"{counts['labelled']:,} with gold passages"
        f"{f', {judged:,} judged by the examiner instead' if judged else ''}, {counts['examined']:,} examined. "
        f"{describe_leaks(evaluation.get('leaks'))}",
        evaluation["verdict"]["reasons"],
        [
            kernel.Section("What the plan expects, and what was measured", list(_plan(evaluation))),
            kernel.Section("Who is better than whom", list(_pairs(evaluation))),
            kernel.Section("Every system", [kernel.Figures(bars), levels]),
            kernel.Section("Rows without gold", list(_by_labels(evaluation, systems))),
            kernel.Section(f"Kinds of questions: {FIRST_IN_WORDS[by]}", list(_kinds(evaluation))),
            kernel.Section(f"Properties of the sample: {FIRST_IN_WORDS[by]}", list(_slices(evaluation))),
            kernel.Section("Searched as asked, on dev", list(_as_asked(evaluation))),
            kernel.Section("Queries side by side", list(_examples(evaluation["candidate"], by, examples or {}))),
            kernel.Section("Training", [*_gains(gains or {}), *curves]),
            kernel.Section("The judges", [judges, *inflation, blind]),
        ],
        [
            *evaluation["notes"],
            "Every system's query went through the same service with the same threshold, "
            f"{settings['retrieval']['score_threshold']}; passages were scored against the row's fixed need.",
            f"Intervals: {settings['draws']:,} bootstrap draws of whole conversations. p: {settings['draws']:,} sign "
            f"flips of whole conversations. Seed {settings['seed']}.",
        ],
        evaluation.get("digests") or {},
    )


def _gains(gains: Mapping[str, StageGain]) -> Blocks:
    """Table of what each training gained on dev, by which it was taken or left out."""
    header = ["on dev", "rows", "measure", "before", "after", "gain, points", "95 %", "taken"]
    rows = []
    for name, gain in gains.items():
        interval = " to ".join(f"{100 * end:+.1f}" for end in gain.interval or ())
        rows.append(
            [
                GAINS[name], f"{gain.rows:,}", gain.measure, f"{gain.before:.3f}", f"{gain.after:.3f}",
                f"{100 * gain.gain:+.1f}", interval, "yes" if gain.taken else "no: the run went on without it",
            ]
        )  # fmt: skip
    if rows:
        yield kernel.Table(header, rows, terminal=True)


def headline(evaluation: Json) -> str:
    """The verdict in one sentence."""
    name = NAMES.get(str(evaluation.get("candidate")), "the candidate")
    if evaluation["verdict"]["promote"]:
        by = decided_by(EvaluationNumbers(evaluation))
        right = "gold" if by == "gold" else "right"
        judged = "" if by == "gold" else " Judged by a model, not gold alone."
        return (
            f"Promote: {name} finds the {right} passage first more often than its teacher; nDCG and recall are no "
            f"worse.{judged}"
        )
    return f"Hold: {name} stays where it is."


def tested_questions(evaluation: Json) -> str:
    """The name of the rows that were tested, which says how."""
    if folds := evaluation.get("cross_fitted", {}).get("folds"):
        return f"cross-fitted questions, each rewritten by one of {folds} models that did not learn from it,"
    return "locked questions"


def _plan(evaluation: Json) -> Blocks:
    """Part 6 of the plan beside the measured figures."""
    rows, metrics = [], metrics_by(decided_by(EvaluationNumbers(evaluation))) | SYSTEM_METRICS
    for name in PLAN:
        metric, row = metrics[name], list[str | kernel.Cell]([metrics[name].name])
        for system, expected in evaluation["expected"].items():
            level = evaluation["systems"].get(system, {}).get(name, {})
            value = metric.number(level.get("value"))
            value = f"{value} (assumed)" if level.get("how") == kernel.ASSUMED else value
            row += [metric.number(expected.get(name)), kernel.Cell(value, metric.interval(level), strong=True)]
        rows.append(row)
    header = ["", *(word for name in evaluation["expected"] for word in (f"{NAMES[name]}, expected", "measured"))]
    yield kernel.Table(header, rows, terminal=True, brief=True)
    yield kernel.Text(
        "Expected: the plan's figures for a large model on graphics processors, in dollars. Measured: here, in "
        f"{evaluation['currency'] or 'the currency of the prices'}; brackets hold 95 % intervals. “assumed” "
        "is a setting, not a measurement."
    )


def _pairs(evaluation: Json) -> Blocks:
    paired = {pair_name(pair): gap for pair, gap in evaluation["paired"].items()}
    metrics = metrics_by(decided_by(EvaluationNumbers(evaluation)))
    for name in ("top1", "ndcg", "recall"):
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
                for name in ("top1", "ndcg", "recall")
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


def _by_labels(evaluation: Json, systems: Mapping[str, Json]) -> Blocks:
    """Figures by labels, apart from gold; nothing where every row has gold, or none has labels."""
    if decided_by(EvaluationNumbers(evaluation)) == "labels":
        yield kernel.Text(
            "The examiner judged these rows, not people, and the verdict reads its grades. It graded each system's "
            "first passage; a passage that nobody judged is left out, or counts as irrelevant where the row says so.",
            terminal=True,
        )
        yield from _apart(evaluation, systems, JUDGED_METRICS, ("gold_top1", "pooled_top1"))
        return
    if "labelled_top1" not in evaluation["systems"]["teacher"]:
        return
    yield kernel.Text(
        "Judges labelled these passages, not people; no verdict reads these figures. A passage that nobody judged "
        "may be relevant or not: it counts as irrelevant, or is left out where the row says so.",
        terminal=True,
    )
    yield from _apart(evaluation, systems, LABEL_METRICS, ("labelled_top1", "condensed_top1"))


def _apart(
    evaluation: Json, systems: Mapping[str, Json], metrics: Mapping[str, Metric], compared: Sequence[str]
) -> Blocks:
    yield kernel.levels_table(systems, metrics)
    for name in compared:
        gaps = ((pair_name(pair), gap[name], metrics[name]) for pair, gap in evaluation["paired"].items())
        yield kernel.gaps_table(f"{metrics[name].name}, points", gaps)


def _kinds(evaluation: Json) -> Blocks:
    """Teacher and candidate in each kind of question, and what is shown of a loss."""
    gate = GateConfig.parse(evaluation["settings"]["gate"], "settings.gate")
    numbers, rows = EvaluationNumbers(evaluation), []
    ps, shown = loss_ps(numbers, gate), shown_losses(numbers, gate)
    for kind, part in evaluation["kinds"].items():
        gap = part["difference"]
        if not part["rows"]:
            rows.append([kind, "0", "", "", "", NO_ROWS])
            continue
        cells = [kernel.level_cell(part[name], TOP1) for name in ("teacher", "candidate")]
        difference = kernel.Cell(TOP1.difference(gap["difference"]), TOP1.difference_interval(gap), strong=True)
        rows.append(
            [kind, f"{part['rows']:,}", *cells, difference, _loss_words(gap, kind in ps, kind in shown, gate)]
        )
    yield kernel.Table(["", "rows", "teacher", NAMES[evaluation["candidate"]], "points", "loss"], rows, terminal=True)
    meanings = "; ".join(KINDS.values())
    yield kernel.Text(
        f"{meanings}. A kind holds the candidate where a loss beyond {100 * gate.kind_margin:.1f} points is shown "
        "(Holm over all kinds)."
    )


def _loss_words(gap: Json, measured: bool, shown: bool, gate: GateConfig) -> str:
    if not measured:
        return "too few questions"
    if shown:
        return "shown"
    if gap["low"] >= -gate.kind_margin:
        return "none"
    return f"open: up to {-100 * gap['low']:.1f} points"


def _as_asked(evaluation: Json) -> Blocks:
    """Table of thresholds of `as_asked` with their effect on dev, for a person to choose by."""
    table = evaluation.get("as_asked")
    if not table:
        return
    rows = [
        [
            f"{line['threshold']:g}",
            f"{line['taken']:,}",
            *(TOP1.number(line[name]) for name in ("as_asked", "teacher")),
        ]
        for line in table
    ]
    yield kernel.Table(["threshold", "questions", "gold first, as asked", "gold first, teacher's rewrite"], rows)
    yield kernel.Text(
        f"Of {table[0]['rows']:,} rows of dev with gold: questions whose own first passage scores at least the "
        f"threshold, and what is right for these. This run's is {evaluation['settings']['as_asked']:g}. Choose the "
        "next run's where the words as asked are right as often as you need; never by the test."
    )


def _slices(evaluation: Json) -> Blocks:
    if slices := evaluation["slices"]:
        rows = [
            [name, f"{part['rows']:,}", *(kernel.level_cell(level, TOP1) for level in part["systems"].values())]
            for name, part in slices.items()
        ]
        yield kernel.Table(["", "rows", *(NAMES[name] for name in evaluation["systems"])], rows)


def draw_examples(predictions: Path, candidate: str, count: int) -> dict[str, list[Json]]:
    """Example queries that the candidate won against the teacher, lost, and that both fail."""

    def kind_of(row: Json) -> str | None:
        """The kind by who finds the right passage first; None where nobody knows it, or where both do."""
        wins, teacher_wins = (row["systems"][name]["rank"] == 1 for name in (candidate, "teacher"))
        if not (row["gold"] or row.get("grades")) or (wins and teacher_wins):
            return None
        return "won" if wins else "lost" if teacher_wins else "still failing"

    return kernel.pick_examples(read_predictions(predictions), EXAMPLE_KINDS, kind_of, count, kernel.conversation_of)


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
    """A line of predictions.jsonl, with the answers of these systems and their names."""
    answers = []
    for system, name in names.items():
        rank, rewrite = (row["systems"][system][part] for part in ("rank", "rewrite"))
        outcome = f"place {rank}" if rank else "not found" if row["gold"] or row.get("grades") else ""
        answers.append(kernel.Answer(name, rewrite or "(empty)", outcome, rank == 1))
    return kernel.Example(row["question"], row["history_summary"], answers)


def judges_line(agreement: Json) -> str:
    """A sentence on the agreement of the two judges, or that they are one model."""
    if agreement["same_model"]:
        return f"Examiner and training judge are one model, {agreement['judge']}: its scores are no second opinion."
    judges = f"Examiner {agreement['examiner']} and training judge {agreement['judge']}"
    if agreement["spearman"] is None:
        return f"{judges}: too few rewrites were scored by both to say how far they agree."
    return (
        f"{judges} on {agreement['n']} rewrites: Spearman {agreement['spearman']:.2f}, Kendall "
        f"{agreement['kendall']:.2f}, {agreement['mean_difference']:.2f} points apart on average."
    )
