"""A vLLM that does not start, or is never ready, ends in an outage that shows its log, and leaves nothing."""

import sys
from pathlib import Path

import pytest

from qinglan.errors import OutageError
from qinglan.jobs.shared_memory import FOLDER
from qinglan.rewriter.engine import engine_options
from qinglan.rewriter.engine_process import run_engine


def interpreter(folder: Path, body: str) -> str:
    """An interpreter that does this, whatever it is started with."""
    path = folder / "python"
    path.write_text(f"#!{sys.executable}\n{body}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "seconds", "message"),
    [
        ("print('no device'); raise SystemExit(3)", 60.0, "did not start; its process ended with 3"),
        ("print('no device', flush=True)\nimport time; time.sleep(99)", 1.0, "was not ready after 1 s"),
    ],
)
def test_an_engine_that_is_never_ready_is_an_outage_with_its_last_lines(
    tmp_path: Path, body: str, seconds: float, message: str
) -> None:
    python = interpreter(tmp_path, body)
    with (
        pytest.raises(OutageError, match=message) as raised,
        run_engine(tmp_path, engine_options("rewriter"), tmp_path / "vllm.log", seconds, python),
    ):
        pass

    assert "no device" in str(raised.value)


LEAVES = """
import os, signal, tempfile
from multiprocessing import resource_tracker, shared_memory

resource_tracker.register = lambda *_: None  # it is killed with the engine
left = [tempfile.mkdtemp(), shared_memory.SharedMemory(create=True, size=16)._name]
print(*left, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
def test_an_engine_that_is_killed_leaves_neither_files_nor_shared_memory(tmp_path: Path) -> None:
    log = tmp_path / "vllm.log"
    python = interpreter(tmp_path, LEAVES)
    with pytest.raises(OutageError, match="ended with -9"), run_engine(tmp_path, [], log, 60.0, python):
        pass

    folder, name = log.read_text().split()
    assert not Path(folder).exists()
    assert not (FOLDER / name.removeprefix("/")).exists()
