"""make bench-augment: what the teacher's further rows are worth to SFT.

A sample goes through the line as far as the base model, once. Then SFT learns from the rows of convert alone, with
rewrites in hindsight, with questions from passages, and with both. Top-1 of the gold passage on dev, by slice, in the
order of BM25; the test is not looked at. Seven to fifteen minutes on two free cores. The last line is JSON.

    python -m benchmarks.augment [FOLDER]     in that folder, which is kept: run again, it goes on
"""

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

from benchmarks.report import report
from commands.run.run import run_pipeline
from pipelines.execute.rundir import RunDir
from pipelines.lines.config import load_config
from pipelines.lines.rewriter import RunConfig
from qinglan.rag.lexical.index import Index, build_index
from qinglan.rewriter.model import Student
from qinglan.rows.questions import Columns, read_questions
from qinglan.rows.rows import Question
from qinglan.terminal import say
from standins.samples import write_sample
from standins.samples.sample_writer import KNOWLEDGE_BASE, QUESTIONS, SLICES

TENANT, CONVERSATIONS, SEED = "fivedoctors", 1600, 100
KINDS: dict[str, dict[str, Any]] = {
    "none": {"hindsight_calls": 0, "pseudo_calls": 0},
    "hindsight": {"pseudo_calls": 0},
    "pseudo": {"hindsight_calls": 0},
    "both": {},
}
"""Settings of the augment stage over the demo's, by kind of run."""

TARGET = 1.1
"""Top-1 with both kinds of rows against top-1 with none."""

SLICES_OF: dict[str, Callable[[dict[str, Any]], bool]] = {
    "all": lambda row: True,
    "gap": lambda row: bool(row["gap"]),
    "documented": lambda row: not (row["gap"] or row["self_contained"] or row["new_ask"]),
    "new_ask": lambda row: bool(row["new_ask"]),
    "self_contained": lambda row: bool(row["self_contained"]),
}


def settings(data: Path, kind: str) -> RunConfig:
    files = {"questions": data / QUESTIONS, "knowledge_base": data / KNOWLEDGE_BASE}
    return load_config(TENANT, "demo", **files, augment=KINDS[kind])


def dev_top1(data: Path, model: Path, index: Index) -> dict[str, float]:
    """The share of dev rows whose gold passage the student's rewrite finds first, by slice."""
    slices = {row["id"]: row for row in map(orjson.loads, (data / SLICES).read_bytes().splitlines())}
    rows = [row for row in read_questions(data / QUESTIONS, Columns(), TENANT) if isinstance(row, Question)]
    dev = [row for row in rows if row.split == "dev"]
    written = Student.load(model).write(dev)
    right = {
        row.id: any(index.passage(hit.number).id in row.gold for hit in index.search(rewrite.text, 1))
        for row, rewrite in zip(dev, written, strict=True)
    }
    shares = {}
    for name, belongs in SLICES_OF.items():
        chosen = [right[row.id] for row in dev if belongs(slices[row.id])]
        shares[name] = round(sum(chosen) / len(chosen), 3)
    return shares


def measure(folder: Path) -> dict[str, Any]:
    """Top-1 by kind of run, with the stage's counts and SFT's seconds."""
    data, root, run = folder / "data", folder / "run", RunDir(folder / "run")
    if not (data / QUESTIONS).exists():
        write_sample(TENANT, data, CONVERSATIONS, SEED)
    if not run.shown("base_model").exists():
        run_pipeline(settings(data, "both"), root, until="base")
    index = Index.open(build_index(data / KNOWLEDGE_BASE, folder / "index", "bench"))
    results = {}
    for kind in KINDS:
        facts: dict[str, Any] = {}
        for stage in ("augment", "sft"):
            record = run_pipeline(settings(data, kind), root, only=stage)["steps"][stage]
            facts[stage] = record["facts"]
        results[kind] = {
            "top1": dev_top1(data, run.shown("sft_model"), index), "rows": facts["sft"]["rows"],
            "steps": facts["sft"]["steps"], "hindsight": facts["augment"]["hindsight_kept"],
            "pseudo": facts["augment"]["pseudo_kept"],
        }  # fmt: skip
        say(f"{kind}: {results[kind]}")
    return results


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="qinglan-augment-") as scratch:
        results = measure(Path(sys.argv[1]) if sys.argv[1:] else Path(scratch))
    for kind, result in results.items():
        shares = "  ".join(f"{name} {share:.3f}" for name, share in result["top1"].items())
        say(f"{kind:10} {result['rows']:5,} rows  {shares}")
    ratio = results["both"]["top1"]["all"] / results["none"]["top1"]["all"]
    report("augment", ratio, TARGET, ratio >= TARGET, conversations=CONVERSATIONS, seed=SEED, kinds=results)


if __name__ == "__main__":
    main()
