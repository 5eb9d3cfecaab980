"""python -m tests.fuzz --seconds 600 [sheet profile ...]: searches each parser for an input that breaks it.

What a search learned lies in runs/fuzz, and the next one goes on from there.
python -m tests.fuzz profile --input FILE parses that file alone.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

from tests.fuzz.target import Target, fault_of
from tests.fuzz.targets import targets

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "runs" / "fuzz"

HANGING_SECONDS = 60
"""Time of one input by the clock, on a busy machine too: for what never answers."""

MOST_MEMORY_MB = 3000

PROGRESS = re.compile(r"^#\d+\s+\w+\s+cov: (\d+) ft: \d+ corp: (\d+)/", re.MULTILINE)
EXECUTED = re.compile(r"^stat::number_of_executed_units:\s*(\d+)", re.MULTILINE)
WRITTEN = re.compile(r"Test unit written to (\S+)\n([^\0]*)")
MOST_BYTES_SHOWN = 400


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=int, default=600, help="for each parser")
    parser.add_argument("--input", type=Path, help="a file that one parser reads, without a search")
    parser.add_argument("parsers", nargs="*", choices=[*targets(), []], metavar="parser")
    options = parser.parse_args()
    names = options.parsers or list(targets())
    if options.input:
        failed = [name for name in names if not answers(targets()[name], options.input)]
    else:
        failed = [name for name in names if not search(name, options.seconds)]
    print(f"{len(names) - len(failed)} of {len(names)} parsers answered or refused in words.", flush=True)
    sys.exit(bool(failed))


def answers(target: Target, path: Path) -> bool:
    fault = fault_of(target, path.read_bytes())
    print("".join(traceback.format_exception(fault)) if fault else f"{path}: answered or refused in words")
    return fault is None


def search(name: str, seconds: int) -> bool:
    """True if no input broke the parser; else the smallest one is printed, with how to parse it again."""
    folder = FOLDER / name
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "log"
    limits = (f"-max_total_time={seconds}", f"-timeout={HANGING_SECONDS}", f"-rss_limit_mb={MOST_MEMORY_MB}")
    with tempfile.TemporaryDirectory() as temporary, log.open("wb") as output:
        command = [sys.executable, "-m", "tests.fuzz.worker", name, str(folder), *limits, "-print_final_stats=1"]
        environment = os.environ | {"TMPDIR": temporary}
        code = subprocess.run(command, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT).returncode
    text = log.read_text(encoding="utf-8", errors="replace")
    progress, executed = PROGRESS.findall(text), EXECUTED.search(text)
    if code == 0 and progress and executed:
        (before, _), (places, unspoiled) = progress[0], progress[-1]
        figures = f"{int(executed[1]):,} inputs in {seconds} s; {before} places reached at first, {places} now"
        print(f"{name}: {figures}; {unspoiled} inputs kept", flush=True)
        return True
    print(f"{name}: {described(name, text)}\nThe whole log: {log}", flush=True)
    return False


def described(name: str, log: str) -> str:
    """Return the input that broke the parser, from the log of its search."""
    if not (written := WRITTEN.search(log)):
        return f"the search ended by itself:\n{log[-2000:]}"
    path = Path(written[1])
    content = path.read_bytes()
    return (
        f"{len(content)} bytes broke it: {content[:MOST_BYTES_SHOWN]!r}\n{written[2][-2000:] or log[-2000:]}\n"
        f"Again: python -m tests.fuzz {name} --input {path}"
    )


if __name__ == "__main__":
    main()
