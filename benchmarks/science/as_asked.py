"""python -m benchmarks.science.as_asked RUN...: when is a question better searched without the student's rewrite?

For each run: the dev rows right first by what is searched, in bands of the plain question's own score and in bands of
the model's certainty; then RL minus teacher on the locked test, had `evaluate.as_asked` been another threshold.
"""

import asyncio
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import orjson

from commands.headroom.report import DevRow, first_is_right, read_dev_rows, with_own_inputs
from commands.run.run import start_services
from components.evaluation.rewriter.score_systems import with_history
from pipelines.execute.execution import run_lock
from pipelines.execute.recorded_config import read_rewriter_config
from pipelines.execute.rundir import RunDir
from pipelines.lines.rewriter import RunConfig
from qinglan.evaluation.first_passages import first_passages
from qinglan.evaluation.question_kinds import COMPLETE, question_kinds
from qinglan.files.files import read_jsonl
from qinglan.rag.as_asked import searched_as_asked
from qinglan.rewriter.model import Student, render_prompt
from qinglan.rows.rows import ValidatedRewrite

SCORES = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.01)
CERTAINTIES = (-100.0, -0.3, -0.1, 0.01)
THRESHOLDS = (0.9, 0.7, 0.5, 0.3)
BATCH = 64


class DevFigures(NamedTuple):
    """Figures of the dev rows, in their order."""

    right: Mapping[str, Sequence[float]]
    """1 where the first passage is right, by what is searched."""

    scores: Sequence[float]
    """The plain question's own."""

    certainties: Sequence[float]
    """Mean log-probability of a token of the RL model's likeliest rewrite."""


def main(folders: Sequence[str]) -> None:
    for folder in folders:
        run = RunDir(Path(folder))
        config = with_own_inputs(read_rewriter_config(run), run)
        figures = dev_figures(run, config)
        print(folder, flush=True)
        for line in (
            *band_lines("own score", figures.scores, SCORES, figures.right),
            *band_lines("log-probability", figures.certainties, CERTAINTIES, figures.right),
            *locked_lines(run, config),
        ):
            print(f"  {line}", flush=True)


def dev_figures(run: RunDir, config: RunConfig) -> DevFigures:
    rows = read_dev_rows(run, config)
    students = [Student.load(run.shown(f"{name}_model")) for name in ("sft", "rl")]
    written = [rewrites(student, rows) for student in students]
    texts = list(zip(*written, [with_history(row.validated) for row in rows], strict=True))
    with run_lock(run), ExitStack() as services:
        url = start_services(config, run, ("ppo",), services)
        firsts = asyncio.run(first_passages([row.prompt for row in rows], texts, url))
    sft, rl, history = zip(*firsts, strict=True)
    right = {
        "plain": [first_is_right(row.prompt, row.prompt.plain_retrieval) for row in rows],
        "with history": history,
        "teacher": [first_is_right(row.prompt, row.prompt.teacher_retrieval) for row in rows],
        "sft": sft,
        "rl": rl,
    }
    certainties = [log_probability(students[1], row, text) for row, text in zip(rows, written[1], strict=True)]
    return DevFigures(right, [row.validated.plain.own_score or 0 for row in rows], certainties)


def rewrites(student: Student, rows: Sequence[DevRow]) -> list[str]:
    starts = range(0, len(rows), BATCH)
    batches = (student.write_messages([row.messages for row in rows[start : start + BATCH]]) for start in starts)
    return [rewrite.text for batch in batches for rewrite in batch]


def log_probability(student: Student, row: DevRow, rewrite: str) -> float:
    """Mean of the tokens of a rewrite, its end among them."""
    import torch

    tokenizer = student.tokenizer
    prompt = tokenizer(render_prompt(tokenizer, row.messages), add_special_tokens=False).input_ids
    answer = [*tokenizer(rewrite, add_special_tokens=False).input_ids, tokenizer.eos_token_id]
    with torch.inference_mode():
        logits = student.model(torch.tensor([prompt + answer])).logits[0].log_softmax(-1)
    return fmean(logits[len(prompt) - 1 + at, token].item() for at, token in enumerate(answer))


def band_lines(
    name: str, values: Sequence[float], edges: Sequence[float], right: Mapping[str, Sequence[float]]
) -> Iterator[str]:
    """Rows right first in each band of these values."""
    for low, high in pairwise(edges):
        band = [at for at, value in enumerate(values) if low <= value < high]
        counts = ", ".join(f"{system} {sum(firsts[at] for at in band):.0f}" for system, firsts in right.items())
        yield f"dev, {name} {low} to {high}: of {len(band)} right first: {counts}"


def locked_lines(run: RunDir, config: RunConfig) -> Iterator[str]:
    """RL minus teacher on the locked test by threshold, from the one that the run was evaluated with downwards."""
    lines = run.shown("predictions").read_bytes().splitlines()
    systems = {row["id"]: row["systems"] for row in map(orjson.loads, lines)}
    rows = [row for _, row in read_jsonl(run.shown("locked_test"), ValidatedRewrite) if row.id in systems]
    complete = {row.id for row in rows if COMPLETE in question_kinds(row, ())}
    for threshold in (each for each in THRESHOLDS if each <= config.evaluate.as_asked):
        gains = {row.id: _gain(row, systems[row.id], threshold) for row in rows}
        yield (
            f"test, {threshold}: RL - teacher {fmean(gains.values()):+.3f}, "
            f"{COMPLETE} {fmean(gains[each] for each in complete):+.3f} of {len(complete)}"
        )


def _gain(row: ValidatedRewrite, systems: dict[str, dict[str, float]], threshold: float) -> float:
    served = "plain" if searched_as_asked(row.plain.own_score, threshold) else "rl"
    return systems[served]["top1"] - systems["teacher"]["top1"]


if __name__ == "__main__":
    main(sys.argv[1:])
