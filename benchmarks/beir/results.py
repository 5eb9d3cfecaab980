"""beir.json and its table: each system's level, its difference to no rewrite, and the inflation factor."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import ir_measures
import numpy as np
from ir_measures import RR, P, R, nDCG

from benchmarks.beir.dataset import Dataset
from benchmarks.beir.retrieve import Query, Ranking
from benchmarks.beir.rewriters import Rewrites
from benchmarks.beir.seeds import recipe_difference, recipe_mean
from qinglan.evaluation.inflation import describe, inflation
from qinglan.evaluation.metrics import Metric
from qinglan.evaluation.pages import report as kernel
from qinglan.evaluation.statistics import Columns, Groups, group_numbers, holm, paired_differences

PLAIN = "plain"
NAMES = {
    PLAIN: "no rewrite", "history": "question + history", "people": "people's rewrite", "sft": "SFT", "rl": "RL",
}  # fmt: skip
MEASURES = {"ndcg10": nDCG @ 10, "recall10": R @ 10, "recall100": R @ 100, "mrr": RR @ 100, "p1": P @ 1}
RANKING_METRICS = {
    "ndcg10": Metric("nDCG@10"), "recall10": Metric("recall@10"), "recall100": Metric("recall@100"),
    "mrr": Metric("MRR@100", "score"), "p1": Metric("P@1"),
}  # fmt: skip
"""The measures' names on the page, one number a query; systems are compared by the first."""

DECIDING = "ndcg10"
SIGNAL = "need_score"
SIGNAL_NAME = "first passage's score against people's rewrite"
NOT_TRAINED = "not defined: name both models, sft and rl, with --run or --model."
NO_NEEDS = "not defined: the benchmark has no people's rewrites, which the reward's score could be taken against."

Json = dict[str, Any]
Systems = Mapping[str, Sequence[Rewrites]]
"""Rewrites of each seed, by the system's name."""


class Draws(NamedTuple):
    """Settings of the bootstrap intervals."""

    draws: int
    seed: int


class Numbers(NamedTuple):
    """Every query's numbers: by system and measure an array of a row a query, a column a seed."""

    values: dict[str, dict[str, Columns]]
    conversations: Groups


def measure(dataset: Dataset, systems: Systems, rankings: Mapping[Query, Ranking]) -> Numbers:
    """Numbers of every query; without a judgement a passage is irrelevant, as in trec_eval."""
    values = {}
    judgements = {row.id: grades for row, grades in zip(dataset.rows, dataset.grades, strict=True)}
    names = {measure: name for name, measure in MEASURES.items()}
    for system, seeds in systems.items():
        columns = {name: np.zeros((len(dataset.rows), len(seeds))) for name in (*MEASURES, SIGNAL)}
        for seed, rewrites in enumerate(seeds):
            rows = {row.id: at for at, row in enumerate(dataset.rows)}
            run = {name: rankings[at, rewrites.queries[at]].scores for name, at in rows.items()}
            for figure in ir_measures.iter_calc([*names], judgements, run):
                columns[names[figure.measure]][rows[figure.query_id], seed] = figure.value
            columns[SIGNAL][:, seed] = [rankings[query].need_score for query in enumerate(rewrites.queries)]
        values[system] = columns
    return Numbers(values, group_numbers([row.conversation_id for row in dataset.rows]))


def build_results(dataset: Dataset, systems: Systems, numbers: Numbers, draws: Draws) -> Json:
    """The content of beir.json, without the origins of its inputs."""
    return {
        "benchmark": {
            "name": dataset.name, "split": dataset.split, "queries": len(dataset.rows),
            "conversations": int(numbers.conversations.max()) + 1, "passages": dataset.passages,
            "digests": dataset.digests,
        },
        "systems": {
            name: {
                "seeds": len(seeds),
                "as_asked": sum(rewrites.as_asked for rewrites in seeds),
                "refused": sum(rewrites.refused for rewrites in seeds),
                **{
                    metric: recipe_mean(numbers.values[name][metric], numbers.conversations, *draws)._asdict()
                    for metric in RANKING_METRICS
                },
            }
            for name, seeds in systems.items()
        },
        "versus_plain": _versus_plain(numbers, draws),
        "inflation": _inflation(dataset, numbers, draws),
        "notes": list(_notes(dataset, systems)),
        "settings": draws._asdict(),
    }  # fmt: skip


def _versus_plain(numbers: Numbers, draws: Draws) -> Json:
    """Each system's differences to no rewrite; p by sign flips of whole conversations, of the seeds' mean."""
    rewriting = [name for name in numbers.values if name != PLAIN]
    if not rewriting:
        return {}
    keys = [(name, metric) for name in rewriting for metric in RANKING_METRICS]
    plain = numbers.values[PLAIN]
    columns = np.column_stack([(numbers.values[name][metric] - plain[metric]).mean(axis=1) for name, metric in keys])
    tests = dict(zip(keys, paired_differences(columns, numbers.conversations, *draws), strict=True))
    adjusted = holm({name: tests[name, DECIDING].p for name in rewriting})
    out: Json = {name: {} for name in rewriting}
    for (name, metric), test in tests.items():
        gap = recipe_difference(numbers.values[name][metric], plain[metric], numbers.conversations, *draws)
        out[name][metric] = {
            "difference": gap.value, "low": gap.low, "high": gap.high, "p": test.p, "n": test.n,
            "conversations": test.conversations, "wins": test.wins, "losses": test.losses,
        }  # fmt: skip
        if metric == DECIDING:
            out[name][metric]["p_holm"] = adjusted.get(name, math.nan)
    return out


def _inflation(dataset: Dataset, numbers: Numbers, draws: Draws) -> Json:
    """RL's gain over SFT by the reward's measure over the same by judgements; `text` says it in a sentence."""
    if not {"sft", "rl"} <= set(numbers.values):
        return {"text": NOT_TRAINED}
    if not dataset.has_needs:
        return {"text": NO_NEEDS}
    after, before = numbers.values["rl"], numbers.values["sft"]
    signal, outsider = (after[name].mean(axis=1) - before[name].mean(axis=1) for name in (SIGNAL, DECIDING))
    part = inflation(signal, outsider, numbers.conversations, *draws)._asdict()
    finite = {
        name: value if not isinstance(value, float) or math.isfinite(value) else None for name, value in part.items()
    }
    return {**finite, "text": describe(finite, SIGNAL_NAME, RANKING_METRICS[DECIDING].name)}


def _notes(dataset: Dataset, systems: Systems) -> list[str]:
    notes = [
        "Every system's query went through the same RAG service, 100 passages without a threshold. A passage that "
        "nobody judged counts as irrelevant."
    ]
    if irrelevant := sum(max(grades.values()) < 1 for grades in dataset.grades):
        notes.append(f"{irrelevant:,} queries have no relevant passage: every system scores 0 on them.")
    if dataset.unjudged:
        notes.append(f"{dataset.unjudged:,} queries are not judged in this split and were not asked.")
    if dataset.no_conversation:
        notes.append(
            f"{dataset.no_conversation:,} queries have no line in conversations.jsonl: each is a conversation of its "
            "own, without a history."
        )
    if dataset.blank:
        notes.append(f"{dataset.blank:,} passages have neither title nor text: nothing can find them.")
    for name, seeds in systems.items():
        if empty := sum(not query.strip() for rewrites in seeds for query in rewrites.queries):
            notes.append(f"{empty:,} rewrites of {name} are empty and find nothing.")
        if as_asked := sum(rewrites.as_asked for rewrites in seeds):
            notes.append(
                f"{as_asked:,} questions of {name} were searched as they were asked: its guard took the rewrite "
                "back, or there was none."
            )
        if refused := sum(rewrites.refused for rewrites in seeds):
            words = next(rewrites.refusal for rewrites in seeds if rewrites.refusal)
            notes.append(
                f"{refused:,} questions of {name} were refused by it and searched as they were asked, as the RAG "
                f"service does. To the first it said: {words}"
            )
        if len(seeds) > 1:
            notes.append(f"{name}: the mean of {len(seeds)} seeds; its intervals draw conversations and seeds.")
    return notes


def build_report(results: Json) -> kernel.Report:
    """The page and the terminal's table."""
    benchmark, settings = results["benchmark"], results["settings"]
    systems = {NAMES.get(name, name): levels for name, levels in results["systems"].items()}
    versus = {NAMES.get(name, name): gaps for name, gaps in results["versus_plain"].items()}
    deciding = [(name, gaps[DECIDING], RANKING_METRICS[DECIDING]) for name, gaps in versus.items()]
    rest = [
        (f"{name}: {metric.name}", gaps[key], metric)
        for name, gaps in versus.items()
        for key, metric in RANKING_METRICS.items()
        if key != DECIDING
    ]
    best = max(systems, key=lambda name: float(systems[name][DECIDING]["value"]))
    bars = [kernel.bars(systems, name, RANKING_METRICS[name]) for name in (DECIDING, "recall100")]
    tables = [
        kernel.gaps_table(f"minus no rewrite: {RANKING_METRICS[DECIDING].name}", deciding),
        kernel.gaps_table("by the other measures", rest, terminal=False),
    ]
    return kernel.Report(
        f"{benchmark['name']}: {best} has the highest {RANKING_METRICS[DECIDING].name}.",
        True,
        f"{benchmark['queries']:,} queries in {benchmark['conversations']:,} conversations, "
        f"{benchmark['passages']:,} passages, judgements of {benchmark['split']}.",
        [],
        [
            kernel.Section("Every system", [kernel.Figures(bars), kernel.levels_table(systems, RANKING_METRICS)]),
            kernel.Section("Better than no rewrite?", tables if versus else []),
            kernel.Section("Inflation", [kernel.Text(inflation_line(results), terminal=True)]),
        ],
        [
            *results["notes"],
            f"Intervals: {settings['draws']:,} bootstrap draws of whole conversations, and of seeds where a system "
            "has several. p: as many sign flips of whole conversations, with Holm's correction for "
            f"{RANKING_METRICS[DECIDING].name}.",
        ],
        benchmark["digests"],
    )


def inflation_line(results: Json) -> str:
    return f"Inflation factor of RL's gain over SFT, {results['inflation']['text']}"
