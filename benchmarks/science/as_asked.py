"""python -m benchmarks.science.as_asked RUN...: what each threshold of `evaluate.as_asked` does in whole runs.

Prints, for each run, how often the plain question, the teacher's rewrite and each model's likeliest rewrite find the
right passage first on dev, by the plain question's own score; then RL minus teacher on the locked test by threshold.
"""

import asyncio
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import orjson

from components.evaluation.rewriter.sample_rewrites import sample_rewrites
from pipelines.execution import run_lock
from pipelines.headroom import DevRow, first_is_right, first_passages, read_dev_rows, with_own_inputs
from pipelines.recorded_config import read_rewriter_config
from pipelines.rewriter import RunConfig
from pipelines.run import start_services
from pipelines.rundir import RunDir
from qinglan.evaluation.question_kinds import COMPLETE, question_kinds
from qinglan.files import read_jsonl
from qinglan.rag.as_asked import searched_as_asked
from qinglan.rows import ValidatedRewrite

BANDS = ((0.9, 1.01), (0.8, 0.9), (0.7, 0.8), (0.6, 0.7), (0.5, 0.6), (0.4, 0.5), (0.3, 0.4), (0.2, 0.3))
THRESHOLDS = (0.9, 0.7, 0.5, 0.3)
MODELS = ("sft", "rl")


def main(folders: Sequence[str]) -> None:
    for folder in folders:
        run = RunDir(Path(folder))
        config = with_own_inputs(read_rewriter_config(run), run)
        print(folder, flush=True)
        for line in (*dev_lines(run, config), *test_lines(run, config)):
            print(f"  {line}", flush=True)


def dev_lines(run: RunDir, config: RunConfig) -> Iterator[str]:
    """Rows right first in each band of the plain question's own score, by what is searched."""
    rows = read_dev_rows(run, config)
    right = {
        "plain": [first_is_right(row.prompt, row.prompt.plain_retrieval) for row in rows],
        "teacher": [first_is_right(row.prompt, row.prompt.teacher_retrieval) for row in rows],
        **{model: _rewritten(run, config, rows, f"{model}_model") for model in MODELS},
    }
    for low, high in BANDS:
        band = [at for at, row in enumerate(rows) if low <= (row.validated.plain.own_score or 0) < high]
        counts = ", ".join(f"{name} {sum(values[at] for at in band):.0f}" for name, values in right.items())
        yield f"dev, {low} to {min(high, 1)}: of {len(band)} right first: {counts}"


def _rewritten(run: RunDir, config: RunConfig, rows: Sequence[DevRow], model: str) -> list[float]:
    """1 for each row whose rewrite by this model finds a right passage first, whatever the plain question finds."""
    written = sample_rewrites(run.shown(model), [row.messages for row in rows], 1, 1, config.evaluate)
    with run_lock(run), ExitStack() as services:
        url = start_services(config, run, ("ppo",), services)
        texts = [[text] for text in written.greedy]
        firsts = asyncio.run(first_passages([row.prompt for row in rows], texts, config, url))
    return [first for [first] in firsts]


def test_lines(run: RunDir, config: RunConfig) -> Iterator[str]:
    """RL minus teacher on the locked test, had the run been evaluated with these thresholds; not below its own."""
    lines = run.shown("predictions").read_bytes().splitlines()
    systems = {row["id"]: row["systems"] for row in map(orjson.loads, lines)}
    rows = [row for _, row in read_jsonl(run.shown("locked_test"), ValidatedRewrite) if row.id in systems]
    complete = {row.id for row in rows if COMPLETE in question_kinds(row, ())}
    for threshold in (each for each in THRESHOLDS if each <= config.evaluate.as_asked):
        gains = {row.id: _gain(row, systems[row.id], threshold) for row in rows}
        of_complete = [gains[each] for each in complete]
        yield (
            f"test, {threshold}: RL - teacher {sum(gains.values()) / len(gains):+.3f}, "
            f"{COMPLETE} {sum(of_complete) / len(of_complete):+.3f} of {len(of_complete)}"
        )


def _gain(row: ValidatedRewrite, systems: dict[str, dict[str, float]], threshold: float) -> float:
    served = "plain" if searched_as_asked(row.plain.own_score, threshold) else "rl"
    return systems[served]["top1"] - systems["teacher"]["top1"]


if __name__ == "__main__":
    main(sys.argv[1:])
