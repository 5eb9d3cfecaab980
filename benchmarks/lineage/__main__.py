"""python -m benchmarks.lineage: what lineage costs beside the bare work. `make bench-lineage`

Signing: a model of 1 GiB signed and verified, beside hashing it. Walking: 100,000 artifacts, beside a loop that opens
and verifies the same envelopes; its growth and memory, and `--which-models`. The walk's ratio and growth
are of CPU time: both are work of one thread, and the machine may have other work.
"""

import argparse
import sys
from pathlib import Path

from benchmarks.lineage import signing, walking
from benchmarks.report import report

SIGNING, WALKING = 1.3, 1.5
MEGABYTES, GROWTH = 1024, 1.3


def main() -> None:
    if sys.argv[1:2] == ["walking"]:
        walking.run(sys.argv[2], Path(sys.argv[3]))
        return
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lineage")
    parser.add_argument("--megabytes", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--artifacts", type=int, default=100_000)
    options = parser.parse_args()
    signed = signing.measure(options.megabytes, options.rounds)
    print(f"signing: {signed or 'model-signing is not installed'}", flush=True)
    sizes = [options.artifacts // 4, options.artifacts // 2, options.artifacts]
    walks = {size: walking.measure(size, walking.KINDS if size == sizes[-1] else ("walk",)) for size in sizes}
    whole = walks[sizes[-1]]
    ratio = whole["walk"]["cpu_seconds"] / whole["bare"]["cpu_seconds"]
    growth = whole["walk"]["cpu_seconds"] / (4 * walks[sizes[0]]["walk"]["cpu_seconds"])
    ok = {
        "signing": max(signed.get("sign_ratio", 99), signed.get("verify_ratio", 99)) <= SIGNING,
        "walking": ratio <= WALKING,
        "memory": whole["walk"]["megabytes"] <= MEGABYTES,
        "growth": growth <= GROWTH,
        "which_models": whole["descendants"]["cpu_seconds"] <= whole["walk"]["cpu_seconds"],
    }
    grown = {f"{size}": walks[size]["walk"]["cpu_seconds"] for size in sizes}
    figures = {"signing": signed, **whole, "walk_cpu_seconds": grown, "growth": round(growth, 3), "met": ok}
    report("lineage", ratio, WALKING, all(ok.values()), figures=figures)


if __name__ == "__main__":
    main()
