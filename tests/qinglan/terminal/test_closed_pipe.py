"""A reader that ends early (`qinglan run acme | head`) does not end the work: what is printed decides nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def run_without_reader(words: list[str], cwd: Path, closed: str = "stdout") -> subprocess.CompletedProcess[bytes]:
    """Run Python with a pipe that nobody reads as one of its outputs."""
    reader, writer = os.pipe()
    os.close(reader)
    out, err = (writer if name == closed else subprocess.PIPE for name in ("stdout", "stderr"))
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    try:
        return subprocess.run(
            [sys.executable, *words], stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=cwd, env=environment,
            timeout=300, check=False,
        )  # fmt: skip
    finally:
        os.close(writer)


@pytest.mark.parametrize("closed", ["stdout", "stderr"])
@pytest.mark.parametrize(
    "line",
    [
        "say('a', to=sys.{closed})",
        "say('a' * 200_000, to=sys.{closed})",
        "say_json({{'a': 1}}, to=sys.{closed})",
        "Console(file=sys.{closed}).print('a')",
        "Console(file=sys.{closed}, width=80).print(markdown('# a'))",
    ],
)
def test_printing_to_a_closed_pipe_ends_nothing(tmp_path: Path, line: str, closed: str) -> None:
    program = (
        "import sys\nfrom pathlib import Path\nfrom qinglan.terminal import say, say_json\n"
        "from qinglan.terminal.console import Console, markdown\n"
        f"for _ in range(3):\n    {line.format(closed=closed)}\n"
        "Path('written').write_text('whole')\nsay('b')\n"
    )

    ended = run_without_reader(["-c", program], tmp_path, closed)

    assert ended.returncode == 0 and (tmp_path / "written").read_text() == "whole"
    assert not ended.stderr
