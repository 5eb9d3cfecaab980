"""The disk and memory of this machine: what a run here needs of them, and what `qinglan fit` says of them."""

import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from pipelines.cli import app
from pipelines.sizing import check
from pipelines.sizing.check import check_room
from pipelines.sizing.profiles import load_profile
from qinglan.errors import ConfigError
from qinglan.sizing.constants import GB


def test_a_training_on_processors_is_refused_where_the_disk_is_too_small_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, folder = load_profile("cpu"), tmp_path / "runs" / "acme-gpt"
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=2 * GB if path == tmp_path else 0))

    with pytest.raises(ConfigError, match=rf"needs up to [\d,.]+ GB of disk, and 2\.0 GB are free, .* {folder} is"):
        check_room(config, folder, ["sft", "ppo"])
    check_room(config, folder, ["generate", "validate"])
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=9000 * GB))
    check_room(config, folder, ["sft", "ppo"])


def test_a_full_disk_is_too_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=0))

    with pytest.raises(ConfigError, match=r"and 0\.0 GB are free"):
        check_room(load_profile("cpu"), tmp_path / "run", ["sft"])


def test_the_files_of_an_earlier_try_take_no_second_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=2 * GB))
    (tmp_path / "checkpoint").write_bytes(bytes(1_000_000))

    assert 2 * GB + 1_000_000 <= check.run_disk(tmp_path) <= 2 * GB + 1_100_000


def test_what_another_run_removes_meanwhile_and_two_names_of_a_file_are_no_trouble(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=2 * GB))
    (tmp_path / "weights").write_bytes(bytes(1_000_000))
    (tmp_path / "copy").hardlink_to(tmp_path / "weights")
    gone = tmp_path / "gone"
    monkeypatch.setattr(Path, "rglob", lambda folder, _: iter([*folder.iterdir(), gone]))

    assert 2 * GB + 1_000_000 <= check.run_disk(tmp_path) <= 2 * GB + 1_100_000


def test_a_disk_of_this_machine_that_does_not_hold_the_run_is_no_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "another").mkdir(parents=True)
    (tmp_path / "runs" / "another" / "weights").write_bytes(bytes(300_000_000))  # no room of this run's

    def fit(free: float) -> tuple[int, str]:
        monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=round(free * GB)))
        result = CliRunner().invoke(app, ["fit", "cpu"])
        return result.exit_code, " ".join(result.stdout.split())

    small, large = fit(19.8), fit(900)

    assert (small[0], large[0]) == (2, 0)
    assert re.search(r"Does not fit: run needs [\d.]+ GB of scratch volume at 'ppo', and there are 19\.8\.", small[1])
    assert re.search(r"Make room for [\d.]+ GB on this machine's disk, or give a run --out on a larger one", small[1])
    assert "It fits" not in small[1] and "It fits where there is as much as it needs." in large[1]


def test_what_this_machine_has_is_said_where_no_machine_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "host_bytes", lambda: round(25.3 * GB))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=round(19.8 * GB)))

    here, named = (
        json.loads(CliRunner().invoke(app, ["fit", name, "--json"]).stdout)["notes"] for name in ("cpu", "one-gpu-24")
    )

    room = "?: no machine is named for it. This one has 25.3 GB of memory in all, and 19.8 GB of disk are free here."
    assert room in here and not [note for note in named if "This one has" in note]
