"""Puts each fault of the table into a copy of the code and runs the tests that must notice it. `make mutants`

    make mutants                              every fault
    make mutants ONLY="journal-* gate-tie"    some of them

Ends with 1 where a fault is not caught, cannot be put in, or its tests fail without it too.
"""

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from fnmatch import fnmatch
from itertools import groupby
from pathlib import Path

from tests.mutants.faults import FOLDER, ROOT, Fault, misfit, read_faults
from tests.mutants.fork import Result, import_libraries, run_tests

LONGEST = 300.0
"""Seconds that the tests of one fault may take."""

SHORTEST, SLOWER = 60.0, 10.0
"""Tests that take so many seconds, and so many times as long as without the fault, have noticed it: they hang."""

FAILED = 1
"""pytest's exit code where a test failed, and nothing else went wrong."""


def main(patterns: Sequence[str]) -> int:
    faults = chosen(read_faults(FOLDER), patterns)
    if not faults:
        print(f"No fault is named {' '.join(patterns)}. See tests/mutants/*.toml.")
        return 1
    began = time.monotonic()
    import_libraries()
    with tempfile.TemporaryDirectory(prefix="qinglan-mutants-") as folder:
        copy = Path(folder) / "code"
        copy_checkout(copy)
        caught = [judged for tests, group in by_tests(faults) for judged in judge_group(copy, tests, group)]
    print(f"{sum(caught)} of {len(caught)} faults are caught, in {time.monotonic() - began:.0f} s.")
    return 0 if all(caught) else 1


def chosen(faults: Sequence[Fault], patterns: Sequence[str]) -> list[Fault]:
    """The faults whose names fit a pattern; all of them where there is none."""
    return [fault for fault in faults if not patterns or any(fnmatch(fault.name, pattern) for pattern in patterns)]


def by_tests(faults: Sequence[Fault]) -> list[tuple[tuple[str, ...], list[Fault]]]:
    """Faults with the same tests together: those tests run once without any fault."""
    ordered = sorted(faults, key=lambda fault: fault.tests)
    return [(tests, list(group)) for tests, group in groupby(ordered, key=lambda fault: fault.tests)]


def copy_checkout(target: Path) -> None:
    """Copy every file that git does not ignore into a repository of its own: some tests ask git for the revision."""
    listed = git(ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    git(target, "init", "--quiet")
    git(target, "add", "--all")
    git(target, "-c", "user.name=mutants", "-c", "user.email=", "commit", "--quiet", "--message", "copy")


def git(folder: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=folder, stdout=subprocess.PIPE, check=True).stdout.decode()


def judge_group(copy: Path, tests: Sequence[str], faults: Sequence[Fault]) -> list[bool]:
    """Check that each fault is caught, after the tests have passed without one."""
    log = copy.parent / "log.txt"
    clean = run_tests(copy, tests, log, LONGEST, write_bytecode=True)
    if clean.code != 0:
        print(f"NOT JUDGED  {', '.join(fault.name for fault in faults)}: these tests fail without any fault:")
        print(f"            {clean.failed or ', '.join(tests)}")
        print(_end_of(log))
        return [False] * len(faults)
    limit = min(LONGEST, max(SHORTEST, SLOWER * clean.seconds))
    return [judge(copy, fault, log, limit) for fault in faults]


def judge(copy: Path, fault: Fault, log: Path, seconds: float) -> bool:
    """Put the fault in, run its tests, take it out."""
    if problem := misfit(fault, copy):
        print(f"NOT PUT IN  {problem}")
        return False
    path = copy / fault.file
    source = path.read_text("utf-8")
    path.write_text(fault.apply(source), "utf-8")
    try:
        result = run_tests(copy, fault.tests, log, seconds, write_bytecode=False)
    finally:
        path.write_text(source, "utf-8")
    return report(fault, result, log)


def report(fault: Fault, result: Result, log: Path) -> bool:
    """Print how the run with the fault ended; True where a test noticed it."""
    if result.code == FAILED and result.failed:
        print(f"caught      {fault.name:<32} {result.seconds:5.1f} s  {result.failed}", flush=True)
        return True
    if result.code == -1:
        print(f"caught      {fault.name:<32} {result.seconds:5.1f} s  the tests no longer end", flush=True)
        return True
    if result.code == 0:
        print(f"NOT CAUGHT  {fault.name}: {fault.promise}\n            {', '.join(fault.tests)}", flush=True)
        return False
    print(f"NOT JUDGED  {fault.name}: pytest ended with {result.code}, which no test caused:\n{_end_of(log)}")
    return False


def _end_of(log: Path) -> str:
    lines = log.read_text("utf-8", "replace").splitlines()[-30:]
    return "\n".join(f"            | {line}" for line in lines)


if __name__ == "__main__":
    sys.exit(main(" ".join(sys.argv[1:]).split()))
