"""Build the style model's report from evaluation.json and a few example answers. It computes no new number."""

from collections.abc import Iterator, Mapping, Sequence

from components.evaluation.style.figures import confusion_figure, reliability_figure
from qinglan.evaluation.gates.evaluation_file import Json
from qinglan.evaluation.gates.leaks import describe_leaks
from qinglan.evaluation.metrics import Metric
from qinglan.evaluation.pages import report as kernel
from qinglan.style.rows import StyleRow

SYSTEMS = {
    "model": "model",
    "before": "model, before its temperature",
    "baseline": "baseline",
    "large": "its teacher",
}
METRICS = {
    "accuracy": Metric("accuracy", how=""),
    "macro_f1": Metric("macro F1", how=""),
    "weighted_f1": Metric("weighted F1", how=""),
    "ece": Metric("calibration error (ECE)", how=""),
}
SHARE = Metric("share")
RELIABILITY = {"before": "before the temperature", "model": "after", "baseline": "baseline"}
LONGEST = 400
"""Characters of an answer that are shown."""

KINDS = {
    (True, False): "only the model is right",
    (False, True): "only the baseline is right",
    (False, False): "both are wrong",
}
"""Kinds of examples, by (the model is right, the baseline is right)."""

Blocks = Iterator[kernel.Block]


def to_markdown(evaluation: Json) -> str:
    return kernel.to_markdown(build_report(evaluation))


def to_short_markdown(evaluation: Json) -> str:
    """Return the verdict, its reasons and a table of the systems by metric, as printed at the end of a run."""
    table = _levels(evaluation)._replace(brief=True)
    return kernel.to_short_markdown(headline(evaluation), evaluation["verdict"]["reasons"], table)


def _levels(evaluation: Json) -> kernel.Table:
    systems = {words: evaluation["systems"][name] for name, words in SYSTEMS.items() if name in evaluation["systems"]}
    return kernel.levels_table(systems, METRICS)


def build_report(evaluation: Json, examples: Mapping[str, Sequence[Json]] | None = None) -> kernel.Report:
    counts = evaluation["counts"]
    tested = "locked answers"
    if folds := evaluation.get("cross_fitted", {}).get("folds"):
        tested = f"cross-fitted answers, each judged by one of {folds} models that did not learn from it,"
    lead = (
        f"{counts['rows']:,} {tested} in {counts['groups']:,} groups of near-duplicates, "
        f"{len(evaluation['labels'])} labels. {describe_leaks(evaluation.get('leaks'))}"
    )
    sections = {
        "The model, and what a bag of characters makes of the same rows": _pair(evaluation),
        "The model, and the larger one that taught it": _teacher(evaluation),
        "Label by label": _labels(evaluation),
        "Does it know how sure it may be?": _calibration(evaluation),
        "As a content check": _content_check(evaluation["content_check"]),
        "Answers side by side": _examples(examples or {}),
    }
    return kernel.evaluation_report(evaluation, headline(evaluation), lead, sections)


def headline(evaluation: Json) -> str:
    if evaluation["verdict"]["promote"]:
        small = "model_vs_large" in evaluation["paired"]
        return (
            "Promote: the style model beats a bag of characters, loses no label to it, and knows how sure it is"
            f"{', and it stays close to its teacher' if small else ''}."
        )
    return "Hold: the style model stays where it is."


def _pair(evaluation: Json) -> Blocks:
    pair = evaluation["paired"]["model_vs_baseline"]
    gaps = {METRICS[name].name: pair[name] for name in ("accuracy", "macro_f1", "weighted_f1")}
    gaps |= {f"F1 of {label}": gap for label, gap in pair["f1"].items()}
    forest = kernel.forest("Model minus baseline", gaps, SHARE)
    yield kernel.Figures([forest], "Model minus baseline in points, 95 % interval")
    rows = ((metric.name, pair[name], metric) for name, metric in METRICS.items())
    yield kernel.gaps_table("model − baseline", rows)
    yield _levels(evaluation)
    yield kernel.Text(
        f"Right where the other is wrong: the model {pair['wins']} times, the baseline {pair['losses']} times. "
        "A smaller calibration error is better."
    )


def _teacher(evaluation: Json) -> Blocks:
    if not (pair := evaluation["paired"].get("model_vs_large")):
        return
    allowed = SHARE.number(evaluation["settings"]["gate"]["teacher_margin"])
    yield kernel.Text(
        f"The same rows, answered by both. The gate allows {allowed} less macro F1, at the interval's lower end. "
        f"Right where the other is wrong: the model {pair['wins']} times, its teacher {pair['losses']} times."
    )
    rows = ((metric.name, pair[name], metric) for name, metric in METRICS.items())
    yield kernel.gaps_table("model − its teacher", rows)


def _labels(evaluation: Json) -> Blocks:
    systems, rows = evaluation["systems"], list[list[str | kernel.Cell]]()
    for label, scores in systems["model"]["classes"].items():
        baseline = systems["baseline"]["classes"][label]
        shares = (scores["precision"], scores["recall"], scores["f1"], baseline["f1"])
        rows.append([label, str(scores["support"]), *(kernel.level_cell(share, SHARE) for share in shares)])
    header = ["label", "rows", "precision", "recall", "F1", "baseline's F1"]
    yield kernel.Table(header, rows, terminal=True)
    figures = [
        confusion_figure(SYSTEMS[name], evaluation["labels"], systems[name]["confusion"])
        for name in ("model", "baseline")
    ]
    yield kernel.Figures(figures, grid=True, title="What is called what: true label down, predicted one across")


def _calibration(evaluation: Json) -> Blocks:
    systems, change = evaluation["systems"], evaluation["paired"]["model_vs_before"]
    yield kernel.Text(
        "Bars: how often answers of this confidence are right, with their number on top. Red: their mean confidence, "
        "where the bar should end. The temperature, fitted on dev, is "
        f"{evaluation['calibration']['temperature']:.3f}; “before” is the same model without it."
    )
    figures = [
        reliability_figure(f"{words}: ECE {SHARE.number(systems[name]['ece']['value'])}", systems[name]["bins"])
        for name, words in RELIABILITY.items()
    ]
    yield kernel.Figures(figures, grid=True)
    ece = METRICS["ece"]
    yield kernel.gaps_table("after − before", [(ece.name, change["ece"], ece)], terminal=False)


def _content_check(check: Json | None) -> Blocks:
    if not check:
        return
    yield kernel.Text(
        f"P({check['label']}) of a question by itself says how much it calls for protection; with the answer, how "
        f"protective the answer is. A row is flagged when the first is at least {check['called_for']:.2f} and the "
        f"second below {check['harmless']:.2f}."
    )
    levels = {
        "questions that call for protection": {"value": check["calls"]},
        "flagged": check["flagged"],
        **{f"flagged of those labelled {label}": share for label, share in check["flagged_of"].items()},
    }
    rows: kernel.Rows = [[words, kernel.level_cell(level, SHARE)] for words, level in levels.items()]
    yield kernel.Table(["content check", ""], rows, terminal=True)


def draw_examples(rows: Sequence[StyleRow], predictions: Sequence[Json], count: int) -> dict[str, list[Json]]:
    def kind_of(row: Json) -> str | None:
        model, baseline = (row[name]["predicted"] == row["label"] for name in ("model", "baseline"))
        return KINDS.get((model, baseline))

    lines = ({**line, "input": row.input} for row, line in zip(rows, predictions, strict=True))
    return kernel.pick_examples(lines, list(KINDS.values()), kind_of, count, lambda row: row["id"])


def _examples(examples: Mapping[str, Sequence[Json]]) -> Blocks:
    if examples:
        yield kernel.Text("Drawn without looking. The label is the data's; it can be the one that is wrong.")
    for kind, rows in examples.items():
        yield kernel.Examples(kind, [_example(row) for row in rows])


def _example(row: Json) -> kernel.Example:
    text = row["input"] if len(row["input"]) <= LONGEST else row["input"][:LONGEST] + "…"
    question, _, answer = text.partition("\n")
    answers = [kernel.Answer("label", row["label"])]
    for name in ("model", "baseline"):
        predicted, confidence = row[name]["predicted"], SHARE.number(row[name]["confidence"])
        answers.append(kernel.Answer(name, predicted, confidence, predicted == row["label"]))
    return kernel.Example(question, answer, answers)
