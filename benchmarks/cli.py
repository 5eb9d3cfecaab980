"""How soon `qinglan --help` answers, beside a bare typer app of the same commands. `make bench-cli`"""

import statistics
import subprocess
import sys
import time

from benchmarks.report import report

BARE = """
import typer
app = typer.Typer()
for name in ("sample", "plan", "run", "compile", "demo", "serve"):
    app.command(name)(lambda: None)
app()
"""
COMMAND = "from commands.cli import main; main()"
RUNS = 15


def seconds(code: str) -> float:
    started = time.monotonic()
    subprocess.run([sys.executable, "-c", code, "--help"], stdout=subprocess.DEVNULL, check=True)
    return time.monotonic() - started


def main() -> None:
    pairs = [(seconds(COMMAND), seconds(BARE)) for _ in range(RUNS + 1)][1:]
    command, bare = (statistics.median(side) for side in zip(*pairs, strict=True))
    ratio = statistics.median(a / b for a, b in pairs)
    print(f"qinglan --help {command * 1000:.0f} ms, a bare typer app {bare * 1000:.0f} ms: {ratio:.2f} times")
    report("cli", ratio, 1.5, ratio <= 1.5, ours_ms=round(command * 1000), bare_ms=round(bare * 1000), runs=RUNS)


if __name__ == "__main__":
    main()
