"""A run shows where it stands, on a terminal and in a log."""

from pathlib import Path

import pytest

from pipelines.execute.rundir import RunDir, write_json
from pipelines.execute.step_display import SHOWN_FACTS, StepDisplay, format_facts, step_line, text_in_language
from qinglan.live.alarms import Alarm
from qinglan.live.outlets import LIVE_VARIABLE
from qinglan.live.view import Part, live_training
from qinglan.messages import chinese

DONE = {
    "status": "done",
    "started": "2026-01-01T00:00:00.000+00:00",
    "ended": "2026-01-01T00:00:02.500+00:00",
    "facts": {"rows": 4614, "quarantined": 0},
}


@pytest.mark.parametrize(
    ("record", "shown"),
    [
        (None, ("generate", "waiting", "")),
        ({"status": "running"}, ("generate", "running", "12/40, 3 a second")),
        (DONE, ("generate", "done", "2.5 s  rows 4,614")),
        ({**DONE, "status": "failed"}, ("generate", "failed", "2.5 s")),
    ],
)
def test_a_step_is_shown_by_what_its_record_says(record: object, shown: tuple[str, str, str]) -> None:
    assert step_line("generate", record, "12/40, 3 a second") == shown  # type: ignore[arg-type]


def test_a_log_gets_one_line_for_each_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, log = RunDir(tmp_path), tmp_path / "run.log"
    log.write_text("    [generate] 5/40, 3 a second\n    [generate] 12/40, 3 a second\nsomething else\n")
    with StepDisplay(run, ("generate", "validate"), log, quiet=False) as live:
        live.update()
        write_json(run.records / "generate.json", {"status": "running"})
        live.update()
        live.update()
        write_json(run.records / "generate.json", DONE)
        live.update()
        live.update()

    assert capsys.readouterr().out.splitlines() == ["✓ generate done 2.5 s  rows 4,614"], "it ran no 30 s"


def test_an_alarm_of_a_training_is_said_at_once_and_not_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunDir(tmp_path)
    monkeypatch.setenv(LIVE_VARIABLE, str(run.live))
    with live_training("sft", "SFT", {}, part=Part("compared on dev")) as training:
        training.step({"step": 1, "dev_with": 0.0}, 1)
        training.check([Alarm("sft-without-gain", "warn", "nothing was learned.")])
    capsys.readouterr()
    with StepDisplay(run, ("sft", "ppo"), tmp_path / "run.log", quiet=False) as live:
        live.update()
        live.update()

    assert capsys.readouterr().out.splitlines() == ["! sft-compared-on-dev, step 1: nothing was learned."]


@pytest.mark.parametrize(
    ("facts", "shown"),
    [
        (
            {"labelled": 382, "plain_top1": 262, "rewritten_top1": 39},
            "labelled 382, gold passage first by the plain question 68.6%, by the teacher's rewrite 10.2%",
        ),
        ({"rows": 5, "labelled": 0, "plain_top1": 0, "rewritten_top1": 0}, "rows 5"),
        ({"release": "0b" * 32}, "release 0b0b0b0b0b0b"),
        (dict.fromkeys("abcdef", 1), "a 1, b 1, c 1, d 1, e 1, f 1"),
        (dict.fromkeys("abcdefg", 1), "a 1, b 1, c 1, ..., e 1, f 1, g 1"),
    ],
)
def test_a_steps_line_has_its_shares_and_its_first_and_last_facts(facts: dict[str, int | str], shown: str) -> None:
    assert format_facts(facts, SHOWN_FACTS) == shown


def test_a_training_says_once_where_it_shows_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, log = RunDir(tmp_path), tmp_path / "run.log"
    write_json(run.records / "sft.json", {"status": "running"})
    with StepDisplay(run, ("sft",), log, quiet=False) as live:
        live.update()
        (run.live / "sft").mkdir(parents=True)
        live.update()
        live.update()

    assert capsys.readouterr().out.splitlines() == [f"  Trainings while they run: {tmp_path / 'live' / 'index.html'}"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("8/260, 4 a second, 69 s left, loss 3.64", "8/260，每秒 4，还剩 69 秒，损失 3.64"),
        ("sft 5/5, 138 a second", "sft 5/5，每秒 138"),
        ("step 1/8, loss 7.038", "第 1/8 步，损失 7.038"),
        ("step 8/8, eval loss 1.198", "第 8/8 步，dev 损失 1.198"),
        (
            "step 2/8, mean reward 0.071, wins 0.352, gold 0.875, gold on dev 0.877, 99 s left",
            "第 2/8 步，平均奖励 0.071，胜过教师的比例 0.352，标准段落 0.875，dev 上的标准段落 0.877，还剩 99 秒",
        ),
        ("10 calls wait, the oldest for 80 s", "10 个调用在等待，最久的已等 80 秒"),
        (
            "64 calls wait, the oldest for 40 s: status 429 (rate limit); asked again in 8 s",
            "64 个调用在等待，最久的已等 40 秒：状态 429（限流）；8 秒后再问",
        ),
        ("0.5 s  行 32，已改写 30", "0.5 s  行 32，已改写 30"),
        ("Give more rows, or another base", "Give more rows, or another base"),
    ],
)
def test_the_progress_of_a_step_is_chinese_figure_by_figure(
    monkeypatch: pytest.MonkeyPatch, text: str, shown: str
) -> None:
    monkeypatch.setattr("qinglan.terminal._in_language", chinese().translate)
    monkeypatch.setattr("qinglan.terminal._comma", "，")

    assert text_in_language(text) == shown
