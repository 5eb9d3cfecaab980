"""The style evaluation for a terminal or a log: the verdict, the measures, the labels."""

from collections.abc import Mapping
from typing import Any

from components.evaluation.style import formatting
from components.evaluation.style.formatting import (
    MEASURES,
    format_difference,
    format_difference_interval,
    headline,
    interval,
    number,
    share,
)
from qinglan.leaks import describe_leaks
from qinglan.report_format import format_p_value, markdown_table


def to_markdown(evaluation: Mapping[str, Any]) -> str:
    """Tables of evaluation.json, nothing added."""
    return "\n".join(
        [
            f"**{headline(evaluation)}**",
            *(f"- {reason}" for reason in evaluation["verdict"]["reasons"]),
            "",
            measures_table(evaluation),
            "",
            labels_table(evaluation),
            "",
            abstention_table(evaluation),
            "",
            *content_lines(evaluation),
            describe_leaks(evaluation.get("leaks")),
            "",
        ]
    )


def measures_table(evaluation: Mapping[str, Any]) -> str:
    model, baseline = (evaluation["systems"][name] for name in ("model", "baseline"))
    found = evaluation["paired"]["model_vs_baseline"]
    rows = [
        [
            words,
            f"{number(model[name]['value'], name)} {interval(model[name], name)}",
            number(baseline[name]["value"], name),
            format_difference(found[name]["difference"], name),
            format_difference_interval(found[name], name),
            format_p_value(found[name]["p"]) if "p" in found[name] else "",
        ]
        for name, words in MEASURES.items()
    ]
    return markdown_table(["", "model", "baseline", "difference", "95 %", "p"], rows)


def labels_table(evaluation: Mapping[str, Any]) -> str:
    model, baseline = (evaluation["systems"][name]["classes"] for name in ("model", "baseline"))
    rows = [
        [
            label, str(found["support"]), *(share(found[name]["value"]) for name in ("precision", "recall")),
            f"{share(found['f1']['value'])} {interval(found['f1'])}", share(baseline[label]["f1"]["value"]),
        ]
        for label, found in model.items()
    ]  # fmt: skip
    return markdown_table(["label", "rows", "precision", "recall", "F1", "baseline's F1"], rows)


def abstention_table(evaluation: Mapping[str, Any]) -> str:
    """Every second step, as a terminal is short."""
    model, baseline = (evaluation["abstention"][name][::2] for name in ("model", "baseline"))
    rows = [
        [
            share(one["coverage"]), f"{one['threshold']:.2f}", share(one["accuracy"]["value"]),
            share(one["macro_f1"]["value"]), share(other["accuracy"]["value"]),
        ]
        for one, other in zip(model, baseline, strict=True)
    ]  # fmt: skip
    return markdown_table(["answers kept", "when as sure as", "accuracy", "macro F1", "baseline's accuracy"], rows)


def content_lines(evaluation: Mapping[str, Any]) -> list[str]:
    """How it does as a content check, where its labels have one for it."""
    if not (found := evaluation["content_check"]):
        return []
    auc = found["auc_question"]
    flagged = ", ".join(f"{label} {share(one['value'])}" for label, one in found["flagged_of"].items())
    return [
        f"As a content check: P({found['label']}) of the question alone tells the rows labelled so with an AUC of "
        f"{number(auc['value'], 'auc')} {interval(auc, 'auc')}. "
        f"Flagged: {share(found['flagged']['value'])} ({flagged}).",
        "",
    ]


def human_labels_markdown(found: Mapping[str, Any]) -> str:
    """What people's labels say, as `read_labels_given` found it."""
    names = {
        "data_and_people": "data and people",
        "model_and_people": "model and people",
        "model_and_data": "model and data",
    }
    rows = [
        [
            words, f"{share(one['agreement']['value'])} {interval(one['agreement'])}",
            f"{formatting.number(one['kappa']['value'], 'kappa')} {interval(one['kappa'], 'kappa')}",
        ]
        for name, words in names.items()
        if (one := found[name])
    ]  # fmt: skip
    labels = list(found["counts"])
    counts = [[label, *(str(found["counts"][label][name]) for name in labels)] for label in labels]
    return "\n".join(
        [
            f"**{found['rows']} of {found['of']} rows labelled by people**, weighted to the whole test.",
            "",
            markdown_table(["", "agreement", "Cohen's kappa"], rows),
            "",
            markdown_table(["data \\ people", *labels], counts),
            "",
        ]
    )
