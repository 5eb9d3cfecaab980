"""make bench-labels: what judges' labels are worth where the sheet has no gold.

Labels alone: how many rows get a right one, how many labels are false, against the gold that the sheet does not name.
Training: a sample whose sheet names gold for the locked test alone goes through the line with labels and without;
that gold takes no part in training or choice. Two whole runs, so a quarter of an hour on two free cores. The last
line is JSON.

    python -m benchmarks.labels quality       the labels alone, in a minute or two
"""

import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from benchmarks.science.runs import without_gold
from commands.run.run import run_pipeline
from pipelines.execute.rundir import RunDir
from pipelines.lines.config import load_config
from qinglan.files.files import read_jsonl
from qinglan.rows.labels import RowLabels, passage_gains
from qinglan.tables.tables import read_table
from qinglan.terminal import say, say_json
from standins.samples import write_sample
from standins.samples.sample_writer import KNOWLEDGE_BASE, QUESTIONS, SLICES

TENANT, CONVERSATIONS, FEW, SEED = "fivedoctors", 1600, 400, 100
KINDS: dict[str, dict[str, Any]] = {"with": {}, "without": {"calls": 0}}
"""Settings of the label stage, by kind of run."""


class Sample(NamedTuple):
    folder: Path
    questions: Path
    gold: dict[str, str]
    """The gold passage of each row, also of those whose sheet does not name it."""


def make_sample(folder: Path, conversations: int) -> Sample:
    """A sample whose training and dev rows name no gold passage."""
    write_sample(TENANT, folder, conversations, SEED)
    gold = {str(cells["编号"]): str(cells["标准段落"]) for _, cells in read_table(folder / QUESTIONS)}
    return Sample(folder, without_gold(folder), gold)


def run(sample: Sample, kind: str, root: Path, until: str) -> RunDir:
    """A run as far as a stage."""
    settings = {"label": KINDS[kind], "evaluate": {"slices": sample.folder / SLICES}}
    files = {"questions": sample.questions, "knowledge_base": sample.folder / KNOWLEDGE_BASE}
    run_pipeline(load_config(TENANT, "demo", **files, **settings), root, until=until)
    return RunDir(root)


def gains(run: RunDir) -> dict[str, Any]:
    """Differences between the systems on the locked test, by its gold."""
    evaluation = orjson.loads(run.shown("evaluation").read_bytes())
    return {
        pair: {end: gap[end] for end in ("difference", "low", "high", "n")}
        for pair, gap in evaluation["paired"].items()
    }


def label_quality(sample: Sample, labels: Path) -> dict[str, Any]:
    """Labels against the gold that the sheet did not name."""
    rows = [row for _, row in read_jsonl(labels, RowLabels)]
    counts = Counter[str]()
    for row in rows:
        relevant = set(passage_gains(row.judged))
        gold = sample.gold[row.id]
        counts.update(relevant=len(relevant), right=gold in relevant, false=len(relevant - {gold}), calls=row.calls)
    if not rows:
        return {}
    return {
        "rows": len(rows), "calls_per_row": counts["calls"] / len(rows), "recall": counts["right"] / len(rows),
        "precision": counts["right"] / max(1, counts["relevant"]),
    }  # fmt: skip


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="qinglan-labels-") as folder:
        root = Path(folder)
        few = make_sample(root / "few", FEW)
        quality = label_quality(few, run(few, "with", root / "quality", "label").shown("labels"))
        say(f"labels: {quality}")
        results: dict[str, Any] = {"labels": quality}
        if sys.argv[1:] != ["quality"]:
            sample = make_sample(root / "data", CONVERSATIONS)
            results |= {kind: gains(run(sample, kind, root / kind, "evaluate")) for kind in KINDS}
    for kind in KINDS.keys() & results.keys():
        for pair in ("sft_vs_teacher", "rl_vs_teacher", "rl_vs_sft"):
            gap = results[kind][pair]
            say(f"{kind} labels, {pair}: {gap['difference']:+.3f} [{gap['low']:+.3f}, {gap['high']:+.3f}]")
    say_json(results)


if __name__ == "__main__":
    main()
