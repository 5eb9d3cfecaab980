"""Shared memory of a training that has ended: what no process holds is removed, and nothing else."""

import mmap
import multiprocessing
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from qinglan.jobs.processes import process_cleanup
from qinglan.jobs.shared_memory import FOLDER, remove_abandoned_segments

HOLD = "import multiprocessing.shared_memory as m, time; held = m.SharedMemory({name!r}, create=True, size=16)"


@pytest.fixture
def name() -> Iterator[str]:
    """The end of this test's names."""
    end = uuid.uuid4().hex[:12]
    yield end
    for path in FOLDER.glob(f"*{end}*"):
        path.unlink(missing_ok=True)  # its process may remove it at this moment


def abandoned(path: Path) -> Path:
    path.write_bytes(bytes(16))
    return path


@pytest.mark.slow
def test_what_nobody_holds_is_removed_after_a_training(name: str, tmp_path: Path) -> None:
    with process_cleanup(tmp_path / "running"):
        left = [abandoned(FOLDER / f"{start}{name}") for start in ("psm_", "sem.mp-", "verl_weights_", "0-cpushm_")]

    assert not any(path.exists() for path in left)


@pytest.mark.slow
def test_what_a_process_has_open_or_mapped_stays(name: str) -> None:
    opened, mapped = abandoned(FOLDER / f"psm_a{name}"), abandoned(FOLDER / f"psm_b{name}")
    with mapped.open("r+b") as file:
        memory = mmap.mmap(file.fileno(), 16)
    with opened.open("rb"):
        remove_abandoned_segments(since=opened.stat().st_ctime)
    assert opened.exists() and mapped.exists()

    memory.close()
    remove_abandoned_segments(since=opened.stat().st_ctime)
    assert not opened.exists() and not mapped.exists()


def test_a_semaphore_that_its_maker_holds_stays() -> None:
    lock = multiprocessing.get_context("spawn").Lock()
    path = FOLDER / f"sem.{lock._semlock.name.removeprefix('/')}"  # type: ignore[attr-defined]

    remove_abandoned_segments(since=path.stat().st_ctime)
    assert path.exists()
    assert lock.acquire(block=False)


@pytest.mark.slow
def test_what_is_older_than_the_training_or_has_a_foreign_name_stays(name: str) -> None:
    older, other = abandoned(FOLDER / f"psm_{name}"), abandoned(FOLDER / f"app_{name}")

    remove_abandoned_segments(since=older.stat().st_ctime + 1)
    assert older.exists()

    remove_abandoned_segments(since=older.stat().st_ctime)
    assert not older.exists() and other.exists()
