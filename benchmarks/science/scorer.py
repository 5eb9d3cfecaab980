"""python -m benchmarks.science.scorer [RUN]: does the reranker's score tell where the gold passage came first?

Over the training rollouts of a run with labels: the mean score of the first passage against the need, where the house
has its own word for what users call otherwise (gap) and elsewhere. RUN is a folder of bench-science.
"""

import statistics
import sys
from collections import defaultdict
from pathlib import Path

import orjson

from qinglan.reward.summary import read_rollouts


def main(folder: Path) -> None:
    questions = [orjson.loads(line) for line in (folder / "data" / "slices.jsonl").read_bytes().splitlines()]
    gap = {entry["id"]: entry["gap"] for entry in questions}
    scores: dict[tuple[bool, bool], list[float]] = defaultdict(list)
    for rollouts in (folder / "gold-yes").glob("scratch/ppo/*/reward"):
        for entry in read_rollouts(rollouts):
            if entry["split"] == "train" and entry["gold_known"]:
                scores[gap[entry["id"]], bool(entry["gold"])].append(entry["top1"])
    for (in_gap, first), values in sorted(scores.items()):
        where, what = "gap" if in_gap else "elsewhere", "first" if first else "not first"
        print(f"{where:10} gold {what:10} score {statistics.fmean(values):.3f}  ({len(values):,} rollouts)")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("runs/science/fivedoctors-21"))
