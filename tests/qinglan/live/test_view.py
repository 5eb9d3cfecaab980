"""A training shows itself while it runs, in files and to a gateway, and is never lost by that."""

import re
from pathlib import Path

import orjson
import pytest

from components.training.ppo.stage import CURVES as PPO_CURVES
from components.training.sft.stage import CURVES as SFT_CURVES
from components.training.style.trainer import CURVES as STYLE_CURVES
from qinglan.live import outlets
from qinglan.live.alarms import Alarm
from qinglan.live.follow import log_tail
from qinglan.live.outlets import HEARTBEAT, LIVE_VARIABLE, Outlet, read_trainings
from qinglan.live.snapshot import POINTS, TrainingSnapshot, curve_points, newest_figures, seconds_left
from qinglan.live.view import LiveTraining, Part, live_training
from qinglan.run_id import run_id
from tests.models.silent_training import silent_training
from tests.screens.browser import Page, open_page
from tests.screens.english import english_left
from tests.screens.strict_html import Strict

CURVES = {"training": "loss"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run's live folder, written at every refresh."""
    monkeypatch.setenv(LIVE_VARIABLE, str(tmp_path / "live"))
    monkeypatch.setenv("QINGLAN_RUN", "run-1")
    monkeypatch.setattr(outlets, "FILES_EVERY", 0.0)
    return tmp_path / "live"


def lines(path: Path) -> list[dict[str, object]]:
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


def test_what_is_written_so_far_can_be_read_after_each_step(folder: Path, tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    with live_training("sft", "SFT", CURVES, log) as live:
        for step in (1, 2):
            log.write_text(f"line {step}\n")
            live.step({"step": step, "loss": 1 / step}, 10)
            live.refresh()

            assert lines(folder / "sft" / "metrics.jsonl") == [
                {"step": at, "loss": 1 / at} for at in range(1, step + 1)
            ]
            assert (folder / "sft" / "log.txt").read_text() == f"line {step}\n"
            assert "sft · running" in (folder / "index.html").read_text()
            assert 'http-equiv="refresh"' in (folder / "index.html").read_text()
    assert "polyline" in (folder / "sft" / "curve.svg").read_text()
    page = (folder / "index.html").read_text()
    assert "<title>Trainings of run-1" in page
    assert "sft · done" in page and 'http-equiv="refresh"' in page, "the next training will be on it"
    assert not list(folder.rglob("*.partial"))


def test_figures_that_come_for_one_step_at_two_times_are_one_row() -> None:
    live = silent_training("sft")
    live.step({"step": 4, "loss": 1.0}, 9)
    live.step({"step": 4, "eval_loss": 2.0}, 9)

    assert live.rows == [{"step": 4, "loss": 1.0, "eval_loss": 2.0}]


def test_an_error_leaves_a_training_that_failed(folder: Path) -> None:
    with pytest.raises(KeyError), live_training("sft", "SFT", CURVES) as live:
        live.step({"step": 1, "loss": 1.0}, 2)
        raise KeyError

    [training] = read_trainings(folder)
    assert (training.state, training.step, training.run) == ("failed", 1, "run-1")


def test_a_snapshot_of_another_release_ends_no_training(folder: Path) -> None:
    (folder / "ppo").mkdir(parents=True)
    (folder / "ppo" / "training.json").write_text('{"stage": "ppo", "percent": 40}')

    with live_training("sft", "SFT", CURVES) as live:
        live.step({"step": 1, "loss": 1.0}, 2)

    assert [training.stage for training in read_trainings(folder)] == ["sft"]
    assert "sft · done" in (folder / "index.html").read_text()


def test_an_alarm_is_said_once_for_each_level_and_stays_in_the_files(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with live_training("ppo", "PPO", CURVES) as live:
        live.step({"step": 3, "loss": 1.0}, 9)
        for level in ("warn", "warn", "stop"):
            live.check([Alarm("kl-runaway", level, "kl is 4.")])
        assert live.stopped and live.stopped.name == "kl-runaway"

    output = [line for line in capsys.readouterr().out.splitlines() if "kl is 4." in line]
    assert output == ["[ppo] warn: kl is 4.", "[ppo] stop: kl is 4."]
    [alarm] = lines(folder / "ppo" / "alarms.jsonl")
    assert alarm == {"name": "kl-runaway", "level": "stop", "message": "kl is 4.", "step": 3}


def test_the_page_shows_every_training_of_the_run_and_escapes_what_a_log_says(folder: Path, tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("</pre><script>alert(1)</script>\x1b[31m \u202e\n")
    with live_training("sft", "SFT", CURVES) as live:
        live.step({"step": 1, "loss": 1.0}, 2)
    with live_training("ppo", "PPO", {}, log) as live:
        live.step({"step": 1, "avg_reward": 0.25}, 4)
        live.check([Alarm("gold-gap", "warn", "<b>bold</b>")])

    page = (folder / "index.html").read_text()
    assert "<script>" not in page and "&lt;script&gt;" in page
    assert "&lt;b&gt;bold&lt;/b&gt;" in page
    assert "\x1b" not in page and "\u202e" not in page
    assert re.findall(r"<h2>([\w-]+) · (\w+)</h2>", page) == [("ppo", "done"), ("sft", "done")]
    strict = Strict()
    strict.feed(page)
    assert (strict.open, strict.fetched) == ([], [])
    assert "width: 25.0%" in page and '<td>mean reward</td><td class="n">0.25</td>' in page


def test_two_trainings_of_a_stage_keep_their_curves_apart(folder: Path) -> None:
    """The second training of SFT wrote over the first one's curve."""
    for number, name in enumerate(("without further rows", "with further rows"), 1):
        with live_training("sft", "SFT", CURVES, part=Part(name, number, 2)) as live:
            live.step({"step": 1, "loss": float(number)}, 2)

    trainings = {training.stage: training.curves["training"] for training in read_trainings(folder)}
    assert trainings == {"sft-without-further-rows": [(1, 1.0)], "sft-with-further-rows": [(1, 2.0)]}


def test_a_page_before_the_first_step_has_no_empty_axis(folder: Path) -> None:
    with live_training("sft", "SFT", CURVES) as live:
        live.refresh()

        page = (folder / "index.html").read_text()
        assert "no step has been done yet" in page and "0 of 0" not in page
        assert "<svg" not in page and "Newest figures" not in page


@pytest.mark.parametrize(
    ("curves", "titles"),
    [
        ({"training": "loss", "validation": "eval_loss"}, ["TITLE"]),
        ({"reward": "avg_reward", "wins": "win_rate", "gold on dev": "gold_dev"}, ["ppo: reward", "ppo: share"]),
        ({"training loss": "loss", "dev macro-F1": "macro_f1"}, ["ppo: loss", "ppo: share"]),
        ({"reward": "avg_reward", "wins": "nothing"}, ["ppo: reward"]),
    ],
)
def test_each_unit_has_a_chart_of_its_own(folder: Path, curves: dict[str, str], titles: list[str]) -> None:
    row = {
        "step": 1,
        "loss": 3.0,
        "eval_loss": 2.0,
        "avg_reward": -0.86,
        "win_rate": 0.5,
        "gold_dev": 0.9,
        "macro_f1": 0.8,
    }
    with live_training("ppo", "TITLE", curves) as live:
        live.step(row, 2)

    assert re.findall(r"<svg[^>]*><title>([^<]*)</title>", (folder / "index.html").read_text()) == titles


def test_figures_have_words_and_the_others_are_folded_away(folder: Path) -> None:
    with live_training("ppo", "PPO", {}) as live:
        live.step({"step": 1, "avg_reward": 0.5, "actor/pg_clipfrac": 0.1}, 2)

    shown, _, folded = (folder / "index.html").read_text().partition("<details>")
    assert "mean reward" in shown and "actor/pg_clipfrac" not in shown and "actor/pg_clipfrac" in folded


def test_a_gateway_that_is_away_is_said_once_and_the_training_goes_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outlets, "SENT_EVERY", 0.0)
    monkeypatch.setattr(outlets, "RETRY_AFTER", 0.0)
    with live_training("sft", "SFT", CURVES, gateway_url="http://127.0.0.1:9") as live:
        for step in (1, 2, 3):
            live.step({"step": step, "loss": 1.0}, 3)
            live.refresh()

    warnings = [line for line in capsys.readouterr().out.splitlines() if "warn" in line]
    assert len(warnings) == 1
    assert "127.0.0.1:9/v1/trainings:" in warnings[0] and "Training goes on" in warnings[0]


def test_a_full_disk_is_no_end_of_a_training(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder.parent.mkdir(exist_ok=True)
    folder.write_text("a file is where the folder should be")
    with live_training("sft", "SFT", CURVES) as live:
        live.step({"step": 1, "loss": 1.0}, 2)
        live.refresh()

    assert capsys.readouterr().out.count("Training goes on") == 1


def test_an_outlet_is_used_for_news_not_too_often_and_as_a_sign_of_life() -> None:
    live, outlet = silent_training("sft"), Outlet("test", 5.0, lambda snapshot, rows: None)
    outlet.write(100.0, "a", live.snapshot(100.0), [])

    assert not outlet.due(104.0, "b")
    assert outlet.due(105.0, "b")
    assert not outlet.due(105.0, "a")
    assert outlet.due(100.0 + HEARTBEAT, "a")


def test_the_time_left_is_by_the_pace_since_the_first_step_that_came() -> None:
    assert seconds_left((10, 0.0), (20, 50.0), 40) == 100.0
    assert seconds_left((10, 0.0), (10, 50.0), 40) is None


def test_steps_of_an_earlier_attempt_are_shown_and_are_no_pace(folder: Path) -> None:
    with live_training("ppo", "PPO", CURVES) as live:
        live.recall([{"step": 1, "loss": 3.0}, {"step": 2, "loss": 2.0}])
        live.refresh()

        [training] = read_trainings(folder)
        assert (training.step, training.seconds_left) == (2, None)
        assert training.curves["training"] == [(1, 3.0), (2, 2.0)]


def test_a_long_curve_is_thinned_and_keeps_its_newest_point() -> None:
    points = curve_points([{"step": at, "loss": float(at)} for at in range(1001)], "loss")

    assert len(points) <= POINTS
    assert points[-1] == (1000, 1000.0)
    assert points == sorted(points)


def test_figures_that_are_no_number_or_no_name_are_left_out() -> None:
    rows = [{"step": 1, "loss": 2.0, "kl": 1.0}, {"step": 2, "loss": float("nan"), "ж": 1.0}]

    assert newest_figures(rows) == {"kl": 1.0}


@pytest.mark.parametrize(("folder_name", "name"), [("五医生 run", "run"), ("a b/c", "a-b-c"), ("", "run")])
def test_a_run_of_any_folder_has_an_id_that_a_url_holds(
    monkeypatch: pytest.MonkeyPatch, folder_name: str, name: str
) -> None:
    monkeypatch.setenv("QINGLAN_RUN", folder_name)

    assert run_id() == name
    assert isinstance(silent_training("sft").snapshot(0.0), TrainingSnapshot)


def test_without_a_folder_and_a_gateway_nothing_is_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(LIVE_VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    with live_training("sft", "SFT", CURVES) as live:
        live.step({"step": 1, "loss": 1.0}, 2)

    assert isinstance(live, LiveTraining)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_browser_shows_the_page_of_a_training_under_way(folder: Path, tmp_path: Path) -> None:
    with live_training("sft", "SFT", CURVES) as live:
        live.step({"step": 3, "loss": 0.5}, 12, "loss 0.500")
        live.refresh()
        page = open_page(folder / "index.html", tmp_path / "profile")

    assert page.title == f"Trainings of {run_id()}"
    assert "sft · running" in page.text and "step 3 of 12" in page.text and "step 3/12 loss 0.500" in page.text


def test_a_logs_tail_has_no_codes_of_a_terminal(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("\x1b[36m(WorkerDict pid=7)\x1b[0m step 1\n")

    assert log_tail(log, 5, 100) == ["(WorkerDict pid=7) step 1"]


@pytest.mark.parametrize("stage", ["sft", "ppo", "style"])
def test_the_page_of_a_running_training_is_chinese_to_its_last_word(
    folder: Path, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    """The step's line was "第 10 步，共 20、约剩 4 分钟 步", and legends stayed English."""
    monkeypatch.setenv("QINGLAN_LANG", "zh")
    curves = {"sft": SFT_CURVES, "ppo": PPO_CURVES, "style": STYLE_CURVES}[stage]
    clock = iter(range(100, 10_000, 60))
    monkeypatch.setattr("qinglan.live.view.steady_time", lambda: float(next(clock)))
    with live_training(stage, "SFT: loss by step", curves) as live:
        for step in (1, 2, 10):
            live.step({"step": step, **dict.fromkeys(curves.values(), 0.5)}, 20)
            live.refresh()

        text = Page((folder / "index.html").read_text())
    assert "第 10 步，共 20 步 · 约剩 " in text.text
    lines = [line for line in text.text.splitlines() if not line.startswith("step ")]
    assert english_left("\n".join(lines)) == []
