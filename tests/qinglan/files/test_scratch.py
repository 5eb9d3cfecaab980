"""The volume that the pods of a job share with the step, and copies on it."""

import threading
from pathlib import Path

import pytest

from qinglan.files.scratch import SCRATCH_VARIABLE, copy_to_scratch, scratch_folder, source_digest


@pytest.fixture
def volume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(SCRATCH_VARIABLE, str(tmp_path / "volume"))
    return tmp_path / "volume"


def model(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "weights").write_bytes(b"w" * 1000)
    return folder


def test_an_input_is_copied_once_under_its_digest(volume: Path, tmp_path: Path) -> None:
    first = copy_to_scratch(model(tmp_path / "step" / "base"), "d1")
    copy = (first / "weights").stat().st_ino

    again = copy_to_scratch(model(tmp_path / "other" / "base"), "d1")

    assert first.is_relative_to(volume) and again == first
    assert (again / "weights").stat().st_ino == copy
    assert (first / "weights").read_bytes() == b"w" * 1000


def test_a_training_finds_its_folder_from_wherever_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(SCRATCH_VARIABLE, "volume")

    assert scratch_folder("ppo", "key").parent == tmp_path / "volume" / "ppo"
    assert copy_to_scratch(model(tmp_path / "base"), "d1") == tmp_path / "volume" / "inputs" / "d1" / "base"


def test_a_folder_on_the_volume_is_not_copied_to_scratch(volume: Path) -> None:
    existing = model(volume / "weights" / "base")

    assert copy_to_scratch(existing, "d2") == existing
    assert not (volume / "inputs").exists()


def test_steps_that_copy_the_same_at_once_all_find_it_whole(volume: Path, tmp_path: Path) -> None:
    source, result = model(tmp_path / "base"), list[Path]()
    threads = [threading.Thread(target=lambda: result.append(copy_to_scratch(source, "d4"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(result) == 8 and len(set(result)) == 1
    assert (result[0] / "weights").stat().st_size == 1000
    assert [path.name for path in (volume / "inputs").iterdir()] == ["d4"]


def test_the_digest_of_a_folders_code_goes_with_the_code_below_it_too(tmp_path: Path) -> None:
    (tmp_path / "plugin").mkdir()
    (tmp_path / "plugin" / "line.py").write_text("a = 1")
    before = source_digest(tmp_path)

    (tmp_path / "plugin" / "line.py").write_text("a = 2")
    assert source_digest(tmp_path) != before
    (tmp_path / "plugin" / "line.py").write_text("a = 1")
    assert source_digest(tmp_path) == before
