"""Style control as it really runs: TRL's GRPO, a reward that learned, one that learned a shortcut, and a judge."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pytest

from benchmarks.style_world import SHORTCUT, learned_style_model, planted, tiny_base, write_style_rows
from components.training.base.config import BaseConfig, TinyConfig
from examples.style_policy import snapshots, stage
from examples.style_policy.config import LimitsConfig, StartConfig, StylePolicyConfig
from examples.style_policy.snapshots import Watch
from examples.style_policy.stage import StylePolicyCounts, style_policy
from examples.style_policy.train import learn_to_answer
from qinglan.errors import TrainingError
from qinglan.files.digests import digest
from qinglan.style.rows import StyleRow, read_split
from tests.models.tiny_rewriter import tiny_model
from tests.models.tiny_style import tiny_style_model

pytestmark = [pytest.mark.slow, pytest.mark.nightly]

TINY = BaseConfig(source="tiny", tiny=TinyConfig(vocabulary=2000, hidden=96, layers=2, heads=4, steps=120, batch=32))
SMALL = StylePolicyConfig(
    device="cpu", start=StartConfig(epochs=2.0, batch=32, learning_rate=2e-3), steps=12, batch=64,
    accumulation=1, num_generations=8,
    learning_rate=8e-4, beta=0.05, max_new_tokens=48, watch_every=4, held_out=64,
)  # fmt: skip


class World(NamedTuple):
    rows: Path
    base: Path
    train: list[StyleRow]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("style")
    rows = write_style_rows(folder / "rows", 1500)
    world = World(rows, tiny_base(folder / "base", 2000, TINY), read_split(rows, "train")[0])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stage, "learn_to_answer", learned_once(world.base, folder / "start"))
        yield world


def learned_once(base: Path, start: Path) -> Callable[..., None]:
    """Trainings in this world begin with the same model, whatever their reward: the first trains it."""

    def learn(trained: Path, out: Path, *arguments: Any) -> None:
        if trained != base:
            return learn_to_answer(trained, out, *arguments)
        if not start.is_dir():
            learn_to_answer(trained, start, *arguments)
        shutil.copytree(start, out, dirs_exist_ok=True)
        return None

    return learn


@pytest.fixture(autouse=True)
def _own_scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QINGLAN_SCRATCH", str(tmp_path / "scratch"))


def train(world: World, reward: Path, out: Path, **settings: Any) -> StylePolicyCounts:
    config = SMALL.model_copy(update=settings)
    return style_policy(world.rows, reward, world.base, out / "model", out / "log", config)


def lines(path: Path) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


def test_a_responder_learns_a_manner_and_a_judge_that_it_never_learned_from_confirms_it(
    world: World, tmp_path: Path
) -> None:
    reward = learned_style_model(tmp_path / "style", world.base, world.train, epochs=3)

    # A judge of so few rows is less sure than the reward, so that the gap grows in an honest training too: by .06 to
    # .27 over seven seeds and two kinds of processor, where the usual limit is .25.
    wider = LimitsConfig(gap=0.45)
    counts = train(world, reward, tmp_path / "a", rewarded=("诚实",), limits=wider)
    again = train(world, reward, tmp_path / "b", rewarded=("诚实",), limits=wider)

    assert counts.judge_low > 0.05 and counts.judge_after > counts.judge_before
    assert counts.reward_after > counts.reward_before + 0.2
    assert (counts.gamed, counts.reused, counts.questions) == (0, 0, 64)
    assert counts.kl > 0 and counts.distinct > 0.5 and counts.repeats < 0.3
    assert again == counts._replace(reused=1)
    assert digest(tmp_path / "a" / "model") == digest(tmp_path / "b" / "model")
    card = orjson.loads((tmp_path / "a" / "model" / "policy.json").read_bytes())
    assert (card["rewarded"], card["alarm"], card["step"]) == (["诚实"], "", counts.best_step)
    log = lines(tmp_path / "a" / "log" / "metrics.jsonl")
    assert [row["step"] for row in log if "judge" in row] == [0, 4, 8, 12]
    assert len(log) == 13 and "train_kl" in log[-1]
    assert "<svg" in (tmp_path / "a" / "log" / "curve.svg").read_text()
    assert set(lines(tmp_path / "a" / "log" / "final.jsonl")[0]) == {"prompt", "start", "now"}


def test_a_shortcut_of_the_reward_is_exploited_and_the_judge_ends_it(world: World, tmp_path: Path) -> None:
    reward = learned_style_model(tmp_path / "style", world.base, list(map(planted, world.train)), epochs=3)

    with pytest.raises(TrainingError, match="the gap grew by"):
        train(world, reward, tmp_path, rewarded=("售前",), steps=28)

    [observed] = tmp_path.glob("scratch/style_policy/*/snapshots.jsonl")
    first, *_, last = lines(observed)
    assert last["reward_low"] > 0.1, "the reward rose"
    assert last["judge"] < first["judge"] + 0.05, "and the judge did not"
    assert last["step"] < 28
    newest = lines(observed.parent / "log" / "newest.jsonl")
    shortcuts = {name: sum(bool(SHORTCUT.search(row[name]["answer"])) for row in newest) for name in ("start", "now")}
    assert shortcuts["now"] > 1.5 * shortcuts["start"]
    assert not (tmp_path / "model").exists()


@pytest.fixture
def dull(tmp_path: Path) -> tuple[World, Path]:
    """Models that mean nothing, for what needs a training and no learning."""
    few = World(write_style_rows(tmp_path / "rows", 300), tiny_model(tmp_path / "base"), [])
    return few, tiny_style_model(tmp_path / "style")


FEW: dict[str, Any] = {
    "steps": 4, "watch_every": 2, "batch": 8, "accumulation": 2, "num_generations": 4, "max_new_tokens": 8,
    "held_out": 16,
    "start": StartConfig(epochs=0.2, batch=32, learning_rate=2e-3),
}  # fmt: skip


def test_a_training_that_is_killed_goes_on_and_sees_the_same(
    dull: tuple[World, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(TrainingError, match="Nothing was learned"):
        train(*dull, tmp_path, **FEW)
    [whole] = tmp_path.glob("scratch/style_policy/*/snapshots.jsonl")
    monkeypatch.setenv("QINGLAN_SCRATCH", str(tmp_path / "scratch2"))
    take = Watch._take
    with monkeypatch.context() as killed:
        killed.setattr(Watch, "_take", lambda *arguments: stop() if arguments[1] == 2 else take(*arguments))
        with pytest.raises(KeyboardInterrupt):
            train(*dull, tmp_path, **FEW)
    [resumed] = tmp_path.glob("scratch2/style_policy/*/snapshots.jsonl")
    assert [snapshot["step"] for snapshot in lines(resumed)] == [0]

    with pytest.raises(TrainingError, match="Nothing was learned"):
        train(*dull, tmp_path, **FEW)

    assert [snapshot["step"] for snapshot in lines(resumed)] == [0, 2, 4]
    assert lines(resumed) == lines(whole)


def stop() -> None:
    raise KeyboardInterrupt


def test_after_an_alarm_the_weights_from_before_it_come_out(
    dull: tuple[World, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The snapshots are staged; training, choice and everything that is written are real."""
    observed: Iterator[dict[str, Any]] = iter(
        ({}, {"judge": 0.5, "judge_low": 0.2, "judge_high": 0.4}, {"gap_low": 0.9, "judge_low": 0.3})
    )
    real = snapshots.make_snapshot

    def staged(*arguments: Any) -> Any:
        return real(*arguments)._replace(**next(observed, {}))

    monkeypatch.setattr(snapshots, "make_snapshot", staged)

    counts = train(*dull, tmp_path, **FEW | {"steps": 8})

    assert (counts.gamed, counts.best_step, counts.steps) == (1, 2, 4)
    assert "the gap grew" in orjson.loads((tmp_path / "model" / "policy.json").read_bytes())["alarm"]
