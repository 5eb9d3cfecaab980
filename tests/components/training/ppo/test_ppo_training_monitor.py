"""A training under way: verl's words become ours, alarms stop it, the best checkpoint is kept."""

from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.training.ppo import checkpoints, training_monitor
from components.training.ppo import metrics as plugin_metrics
from components.training.ppo.metrics import Step, parse_step
from components.training.ppo.plugin.reward_terms import reward_seconds
from pipelines.lines.config import load_config
from qinglan.errors import OutageError
from qinglan.reward.outage import write_outage
from tests.models.silent_training import silent_training

DEV = {"qinglan/one": 30, "qinglan/two": 10}
PATIENCE = 3


def line(step: int, reward: float | None = 0.1, **data: Any) -> dict[str, Any]:
    values = {"critic/score/mean": reward, "actor/pg_loss": 0.1, "response_length/mean": 8.0}
    return {"step": step, "data": {**values, **data}}


def dev(gold: float) -> dict[str, float]:
    terms = {"score": 0.2, "gold": gold, "gold_known": 1.0}
    return {f"val-aux/{source}/{name}/mean@1": value for source in DEV for name, value in terms.items()}


def test_a_step_has_the_plans_names() -> None:
    metrics = {
        "actor/reward_kl_penalty": 0.1, "timing_s/gen": 2.0, "timing_s/update_actor": 1.0,
        "timing_s/update_critic": 0.5, "reward/win_rate": 0.6, "reward/gold": 0.4, "critic/vf_loss": 0.3,
    }  # fmt: skip
    step = parse_step(line(7, 0.25, **metrics), DEV)

    assert (step["step"], step["avg_reward"], step["win_rate"], step["train_gold"]) == (7, 0.25, 0.6, 0.4)
    assert step["kl"] == 0.1, "nats a token, as verl counts"
    assert (step["seconds_rollout"], step["seconds_update"], step["value_loss"]) == (2.0, 1.5, 0.3)


def test_the_first_steps_samples_tell_what_rewards_have_to_strengthen() -> None:
    some = training_monitor.headroom_message({"step": 1.0, "win_rate": 0.21, "loss_rate": 0.34})
    none = training_monitor.headroom_message({"step": 1.0, "win_rate": 0.01, "loss_rate": 0.34})

    assert some.startswith("headroom: ") and none.startswith("warn: headroom: ")
    assert training_monitor.headroom_message({"step": 1.0, "avg_reward": 0.1}) == ""


def test_dev_counts_each_row_once_and_gold_where_it_is_known() -> None:
    data = {
        "val-aux/qinglan/one/score/mean@1": 0.4, "val-aux/qinglan/one/gold/mean@1": 0.5,
        "val-aux/qinglan/one/gold_known/mean@1": 1.0, "val-aux/qinglan/two/score/mean@1": 0.0,
        "val-aux/qinglan/two/gold/mean@1": 0.0, "val-aux/qinglan/two/gold_known/mean@1": 0.0,
    }  # fmt: skip

    step = plugin_metrics.dev_metrics(data, DEV)

    assert step["reward_dev"] == pytest.approx(0.3)
    assert step["gold_dev"] == pytest.approx(0.5)
    assert step["gold_dev_rows"] == DEV["qinglan/one"]


@pytest.mark.slow
@given(st.dictionaries(st.integers(0, 50), st.floats(0, 1), max_size=12))
def test_the_best_step_is_the_earliest_of_the_highest_and_never_the_start(golds: dict[int, float]) -> None:
    best = training_monitor.best_step({at: {"gold_dev": gold} for at, gold in golds.items()})

    trained = {at: gold for at, gold in golds.items() if at}
    if not trained:
        assert best is None
    else:
        assert best == min(at for at, gold in trained.items() if gold == max(trained.values()))


class Trained:
    """A watch over a file that the test writes, as verl would."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log = folder, folder / "verl.jsonl"
        self.better: list[int] = []
        self.watch = training_monitor.TrainingMonitor(
            self.log, folder / "metrics.jsonl", folder / "reward", DEV, silent_training("ppo"), 9, PATIENCE,
            self.better.append,
        )  # fmt: skip

    def say(self, *lines: dict[str, Any]) -> bool:
        with self.log.open("ab") as file:
            file.writelines(orjson.dumps(step) + b"\n" for step in lines)
        return self.watch()


def test_each_new_best_is_told_once(tmp_path: Path) -> None:
    training = Trained(tmp_path)

    assert not training.say({"step": 0, "data": dev(0.7)}, line(1, 0.1), line(2, 0.2, **dev(0.5)))
    assert not training.say(line(3, 0.3), line(4, 0.4, **dev(0.6)), line(6, 0.5, **dev(0.6)))

    assert training.better == [2, 4]
    stored_steps = training_monitor.read_steps(tmp_path / "metrics.jsonl")
    assert (stored_steps[0]["gold_dev"], stored_steps[4]["avg_reward"]) == (0.7, 0.4)


@pytest.mark.parametrize(
    ("golds", "patience", "total", "stalled"),
    [
        ({}, 3, 20, False),
        ({0: 0.9}, 1, 20, False),
        ({0: 0.9, 2: 0.5}, 1, 20, False),  # its own best so far, although the SFT model is better
        ({2: 0.5, 4: 0.5}, 1, 20, True),  # equal is no better
        ({2: 0.5, 4: 0.4, 6: 0.5}, 3, 20, False),
        ({2: 0.5, 4: 0.4, 6: 0.5, 8: 0.5}, 3, 20, True),
        ({2: 0.5, 4: 0.4, 6: 0.4, 8: 0.51}, 3, 20, False),
        ({2: 0.5, 4: 0.4, 6: 0.4, 8: 0.51, 10: 0.5, 12: 0.5}, 3, 20, False),
        ({2: 0.5, 4: 0.4, 6: 0.4, 8: 0.51, 10: 0.5, 12: 0.5, 14: 0.5}, 3, 20, True),
        ({2: 0.5, 4: 0.4, 6: 0.5, 8: 0.5}, 3, 8, False),  # it has ended
        ({2: 0.5, 4: 0.4, 6: 0.5, 8: 0.5}, 0, 20, False),
        ({0: 0.9, 2: 0.5, 4: 0.55, 6: 0.6, 8: 0.65}, 3, 20, False),  # below the SFT model, and rising
    ],
)
def test_a_training_that_no_longer_improves_on_dev_stops(
    golds: dict[int, float], patience: int, total: int, stalled: bool
) -> None:
    steps = {at: {"step": at, "gold_dev": gold} for at, gold in golds.items()}
    steps |= {at: {"step": at, "avg_reward": 0.1} for at in range(1, max(golds, default=0)) if at not in golds}

    assert training_monitor.has_stalled(steps, patience, total) is stalled


def test_it_stops_at_the_test_that_exhausts_its_patience(tmp_path: Path) -> None:
    training = Trained(tmp_path)

    ends = [
        training.say(line(at, 0.1 * at, **dev(gold))) for at, gold in enumerate((0.5, 0.6, 0.6, 0.5, 0.6), start=1)
    ]

    assert ends == [False, False, False, False, True]
    assert training.better == [1, 2]


def test_the_demos_training_cannot_be_stopped_early() -> None:
    """Its four tests leave no step after three that are no better, so that its result is what it was."""
    config = load_config("fivedoctors", "demo").ppo

    assert config.patience >= config.validations - 1 and config.critic_warmup == 0


@pytest.mark.parametrize("before", [0.70, 0.80])
def test_gold_before_the_training_counts_when_the_reward_is_doubted(
    tmp_path: Path, before: float, capsys: pytest.CaptureFixture[str]
) -> None:
    training = Trained(tmp_path)
    golds = {2: 0.76, 4: 0.78, 6: 0.76}
    trained = [line(at, 0.1 * at, **(dev(golds[at]) if at in golds else {})) for at in range(1, 7)]

    training.say({"step": 0, "data": dev(before)}, *trained)

    assert ("may be gaming the reward" in capsys.readouterr().out) is (before == 0.80)


def test_half_a_line_waits_for_its_end(tmp_path: Path) -> None:
    training = Trained(tmp_path)
    training.log.write_bytes(orjson.dumps(line(1))[:20])

    assert not training.watch()
    assert training.watch.steps == {}


def test_a_loss_that_is_no_number_stops_it(tmp_path: Path) -> None:
    training = Trained(tmp_path)

    assert training.say(line(1), line(2, **{"actor/pg_loss": None}))
    assert training.watch.stopped and training.watch.stopped.name == "not-a-number"


def test_an_outage_stops_it_with_the_reward_workers_own_error(tmp_path: Path) -> None:
    training = Trained(tmp_path)
    (tmp_path / "reward").mkdir()
    write_outage(tmp_path / "reward", OutageError("RAG is away."), "r1")

    assert training.say(line(1))
    assert isinstance(training.watch.outage, OutageError)


def test_steps_after_the_checkpoint_are_forgotten_when_it_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    steps: dict[int, Step] = {at: {"step": at, "avg_reward": 0.1 * at} for at in range(6)}
    training_monitor.write_steps(path, steps)

    training_monitor.resume_steps(tmp_path / "verl.jsonl", path, DEV, 3)

    assert sorted(training_monitor.read_steps(path)) == [0, 1, 2, 3]


def test_log_lines_that_were_not_yet_read_are_not_lost_on_resume(tmp_path: Path) -> None:
    """A training that is killed may be some steps ahead of who reads its log."""
    training = Trained(tmp_path)
    training.say({"step": 0, "data": dev(0.7)})
    unread = [line(1, 0.1, **dev(0.6)), line(2, 0.2, **dev(0.5)), line(3, 0.3)]
    training.log.write_bytes(b"".join(orjson.dumps(step) + b"\n" for step in unread) + orjson.dumps(line(4))[:20])

    settled = training_monitor.resume_steps(training.log, tmp_path / "metrics.jsonl", DEV, 2)

    assert [(at, step.get("gold_dev"), step.get("avg_reward")) for at, step in settled.items()] == [
        (0, 0.7, None), (1, 0.6, 0.1), (2, 0.5, 0.2),
    ]  # fmt: skip
    assert training_monitor.read_steps(tmp_path / "metrics.jsonl") == settled
    assert training_monitor.best_step(settled) == 1


def test_the_best_checkpoint_outlives_verls_deletion(tmp_path: Path) -> None:
    import shutil

    actor = checkpoints.actor_folder(tmp_path, 4)
    actor.mkdir(parents=True)
    (actor / "weights").write_text("w")

    checkpoints.keep_best(tmp_path, 4, tmp_path / "best")
    shutil.rmtree(actor)

    assert (checkpoints.best_checkpoint_step(tmp_path / "best"), checkpoints.latest_step(tmp_path)) == (4, 0)
    assert (tmp_path / "best" / "actor" / "weights").read_text() == "w"


def test_reward_time_that_hides_behind_generation_is_not_counted_as_waiting() -> None:
    quick_then_slow = [
        {"generate_sequences": 1.0, "compute_score": 0.5},
        {"generate_sequences": 3.0, "compute_score": 0.2},
    ]

    result = reward_seconds(quick_then_slow)

    assert result["seconds_unhidden"] == pytest.approx(0.2)
    assert result["seconds_mean"] == pytest.approx(0.35)


@pytest.mark.parametrize(
    ("golds", "message", "step"),
    [
        ((0.7, 0.4, 0.3), "so the SFT model is the result: 0.700 before, 0.400 at best (step 1)", 0),
        ((0.7, 0.7), "no checkpoint stands above the SFT model on dev: 0.700 before and at best (step 1)", 1),
        ((0.7, 0.6, 0.8), "", 2),
    ],
)
def test_a_training_that_gained_nothing_says_so_and_never_ends_below_sft(
    golds: tuple[float, ...], message: str, step: int
) -> None:
    steps: dict[int, Step] = {at: {"step": at, "gold_dev": gold} for at, gold in enumerate(golds)}

    assert message in training_monitor.no_gain_message(steps)
    assert bool(message) == bool(training_monitor.no_gain_message(steps))
    assert training_monitor.model_step(steps) == step


@pytest.mark.parametrize(
    ("name", "measure", "best", "taken"),
    [("gold_dev", "right passage first", 0.6, True), ("reward_dev", "mean reward", 0.4, False)],
)
def test_the_gain_of_a_training_is_that_of_its_best_step(name: str, measure: str, best: float, taken: bool) -> None:
    steps: dict[int, Step] = {at: {"step": at, name: value} for at, value in enumerate((0.5, 0.3, best))}

    gain = training_monitor.stage_gain(steps, 40)

    assert gain is not None
    assert (gain.rows, gain.measure, gain.before, gain.after, gain.taken) == (40, measure, 0.5, best, taken)


def test_a_training_whose_start_was_not_tested_says_nothing_of_a_gain() -> None:
    assert training_monitor.stage_gain({1: {"step": 1, "gold_dev": 0.1}}, 40) is None
    assert training_monitor.no_gain_message({1: {"step": 1, "gold_dev": 0.1}}) == ""
    assert training_monitor.model_step({1: {"step": 1, "gold_dev": 0.1}}) == 1
