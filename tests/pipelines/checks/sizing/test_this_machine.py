"""The disk and memory of this machine: what a run here needs of them, and what `qinglan fit` says of them."""

import os
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from commands.cli import app
from pipelines.checks.sizing import check
from pipelines.checks.sizing.check import check_room
from pipelines.checks.sizing.profiles import load_profile
from pipelines.lines.rewriter import REWRITER, RunConfig
from pipelines.lines.sheet import in_folds
from qinglan.errors import ConfigError
from qinglan.sizing.constants import GB


@pytest.fixture(autouse=True)
def much_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "host_bytes", lambda: 500 * GB)


def test_a_training_on_processors_is_refused_where_the_disk_is_too_small_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, folder = load_profile("cpu"), tmp_path / "runs" / "acme-gpt"
    for free in (2 * GB, 0):
        usage = {tmp_path: SimpleNamespace(free=free)}
        monkeypatch.setattr("shutil.disk_usage", usage.__getitem__)
        with pytest.raises(ConfigError, match=rf"run needs [\d,.]+ GB of .*are {free / GB:.1f}\.\n"):
            check_room(config, folder, ["sft", "ppo"])
    check_room(config, folder, ["generate", "validate"])
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=9000 * GB))
    check_room(config, folder, ["sft", "ppo"])


@pytest.mark.parametrize(("profile", "stage"), [("cpu", "ppo"), ("style/cpu", "distil")])
def test_a_training_on_processors_is_refused_where_the_memory_is_too_small_for_it(
    profile: str, stage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = load_profile(profile)
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=9000 * GB))
    check_room(config, tmp_path / "run", [stage])
    monkeypatch.setattr(check, "host_bytes", lambda: 12 * GB)

    with pytest.raises(
        ConfigError, match=rf"Does not fit: {stage} needs [\d.]+ GB of host .*, and there are 12\.0\."
    ):
        check_room(config, tmp_path / "run", [stage])
    check_room(config, tmp_path / "run", ["evaluate"])


def test_the_disk_of_a_run_that_ends_early_is_what_its_own_stages_fill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PPO's checkpoints take ten times the disk of SFT's."""
    config = load_profile("cpu")
    assert isinstance(config, RunConfig)
    folded = config.model_copy(update={"convert": in_folds(config.convert, 5)})
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=5 * GB))

    check_room(folded, tmp_path / "run", REWRITER.until("sft"))
    with pytest.raises(ConfigError, match="GB of scratch volume at 'ppo'"):
        check_room(config, tmp_path / "run", REWRITER.until("ppo"))


def test_the_files_of_an_earlier_try_take_no_second_room_under_two_names_or_while_one_is_removed(
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
    with (tmp_path / "runs" / "another" / "weights").open("wb") as weights:  # no room of this run's
        os.posix_fallocate(weights.fileno(), 0, 300_000_000)

    def fit(free: float) -> tuple[int, str]:
        monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=round(free * GB)))
        result = CliRunner().invoke(app, ["fit", "cpu"])
        return result.exit_code, " ".join(result.stdout.split())

    small, large = fit(19.8), fit(900)

    assert (small[0], large[0]) == (2, 0)
    assert re.search(r"Does not fit: run needs [\d.]+ GB of scratch volume at 'ppo', and there are 19\.8\.", small[1])
    assert "It fits" not in small[1] and "It fits." in large[1]
