"""A run ends with one screen of at most 30 lines; the rest is in its summary.txt."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from commands.run.end_screen import end_lines, gated_evaluation, print_screen, print_summary
from pipelines.execute.rundir import RunDir
from pipelines.lines.config import load_config
from pipelines.lines.rewriter import REWRITER
from qinglan.files.files import dump_line
from qinglan.live.alarms import Alarm
from qinglan.live.outlets import LIVE_VARIABLE
from qinglan.live.view import live_training
from qinglan.messages import chinese
from qinglan.rows.rows import QuarantinedRow, Rewrite
from tests.qinglan.evaluation.gates.test_rewriter_gate import good
from tests.screens.english import english_left

SYSTEMS = ("plain", "history", "teacher", "sft", "rl")
LINES = 30
GAIN = "RL minus teacher, gold passage first: +6.0 points [+4.0, +8.0], p 0.0010, 1000 queries."
REASONS = [f"Too few: {number} queries with gold passages were compared, and 200 are wanted." for number in range(14)]
FACTS: dict[str, dict[str, Any]] = {
    "generate": {"rows": 482, "rewritten": 382, "quarantined": 100},
    "validate": {"rows": 382, "accepted": 19, "labelled": 382, "plain_top1": 262, "rewritten_top1": 39},
    "convert": {"sft_train": 12},
}
MONEY = {"cost": 1.6682, "hits": 37, "attempts": 450, "retrieval_hit_rate": 0.5, "by_step": [{"answered": 445}]}


def step(facts: dict[str, Any]) -> dict[str, Any]:
    times = {"started": "2026-01-01T00:00:00+00:00", "ended": "2026-01-01T00:00:02+00:00"}
    return {"status": "done", **times, "facts": facts}


def record(until: str, **changes: Any) -> dict[str, Any]:
    ran = REWRITER.until(until)
    steps = {stage: step(FACTS.get(stage, {})) if stage in ran else None for stage in REWRITER.stages}
    return {"ran": ran, "steps": steps, "verdict": {}, "gateway": MONEY, "seconds": 369.1, **changes}


def write_evaluation(run: RunDir, reasons: list[str], loss: float = 0.0) -> None:
    evaluation = good() | {"verdict": {"promote": False, "reasons": reasons}}
    metrics = ("top1", "ndcg", "recall", "quality", "invented", "zero_hit", "copied", "length")
    evaluation["systems"] = {name: {metric: {"value": 0.5} for metric in metrics} for name in SYSTEMS}
    if loss:
        gap = {"difference": -loss, "low": -loss - 0.1, "high": -loss + 0.1}
        evaluation["paired"]["rl_vs_teacher"]["quality"] = gap
    run.files.mkdir(parents=True)
    run.shown("evaluation").write_bytes(orjson.dumps(evaluation))


def screen(run: RunDir, capsys: pytest.CaptureFixture[str], of: dict[str, Any], profile: str = "demo") -> str:
    lines = end_lines(load_config("fivedoctors", profile), run, of)
    print_screen(run, of, gated_evaluation(run, of), lines)
    return capsys.readouterr().out


PROMOTED = {"word": "promote", "reasons": [GAIN]}
HELD = {"word": "hold", "reasons": REASONS}


@pytest.mark.parametrize(
    ("until", "verdict", "profile", "shown", "hidden"),
    [
        ("register", PROMOTED, "demo", ("Promote: RL", "question + history", "numbers that", "Report: "), ("Hold",)),
        ("gate", HELD, "demo", ("Hold: RL stays", "and 8 more", "qinglan headroom "), ("Promote",)),
        ("gate", HELD, "gpt", ("Cost: 1.6682 ", "445 calls paid", "37 (8%)"), ("stand-in",)),
        ("register", PROMOTED, "demo", ("Cost: nothing", "1.67", "qinglan audit "), ("paid", "plain question")),
        ("convert", {}, "gpt", ("68.6% by the plain question, 10.2% by", "--until augment"), ("Report: ", "Hold")),
        ("generate", {}, "gpt", ("rows in the sheet 482, rewritten by the teacher 382",), ("Report: ", "plain")),
    ],
)  # fmt: skip
def test_a_run_ends_with_what_matters_on_one_screen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], until: str,
    verdict: dict[str, Any], profile: str, shown: tuple[str, ...], hidden: tuple[str, ...],
) -> None:  # fmt: skip
    monkeypatch.setenv("COLUMNS", "100")
    run = RunDir(tmp_path)
    if verdict:
        write_evaluation(run, ["another gate's reason"])

    text = screen(run, capsys, record(until, verdict=verdict), profile)

    assert len(text.splitlines()) <= LINES
    assert [words for words in shown if words not in text] == [] == [words for words in hidden if words in text]
    assert "another gate's reason" not in text and "Time: 369 s" in text and str(run.summary) in text


@pytest.mark.parametrize(("verdict", "shown"), [({}, "Hold: RL"), (PROMOTED, "Promote: RL")])
def test_the_verdict_is_this_runs_or_without_a_gate_that_of_the_evaluation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], verdict: dict[str, Any], shown: str
) -> None:
    write_evaluation(RunDir(tmp_path), ["the evaluation's reason"])

    text = screen(RunDir(tmp_path), capsys, record("evaluate", verdict=verdict))

    assert shown in text and ("the evaluation's reason" in text) is (not verdict)


@pytest.mark.parametrize(("loss", "is_reported"), [(0.17, True), (0.05, False), (0.0, False)])
def test_a_held_models_surest_losses_are_named_though_no_gate_asks_for_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], loss: float, is_reported: bool
) -> None:
    write_evaluation(RunDir(tmp_path), ["Too few."], loss)

    text = screen(RunDir(tmp_path), capsys, record("gate"))

    assert ("Below the teacher too: quality, by the examiner, -0.17" in text) is is_reported


def test_an_alarm_of_a_training_is_on_the_screen_that_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = RunDir(tmp_path)
    monkeypatch.setenv(LIVE_VARIABLE, str(run.live))
    with live_training("ppo", "PPO", {}) as live:
        live.step({"step": 48, "kl": 4.0}, 48)
        live.check([Alarm("kl-runaway", "warn", "kl is 4.")])
    capsys.readouterr()

    assert "! ppo, step 48: kl is 4." in screen(run, capsys, record("ppo"))
    assert "kl is 4." not in screen(run, capsys, record("convert")), "the alarm of an earlier run"


def test_what_is_not_on_the_screen_is_in_the_runs_summary(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = RunDir(tmp_path)
    run.files.mkdir()
    print_summary(load_config("fivedoctors", "demo"), run, record("convert"))

    text = capsys.readouterr().out
    summary = run.summary.read_text(encoding="utf-8")
    assert "quarantined 100" in summary and "quarantined 100" not in text
    assert [line for line in text.splitlines() if line not in summary] == []


@pytest.mark.parametrize("until", ["gate", "convert"])
def test_the_screen_is_chinese_to_its_last_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], until: str
) -> None:
    monkeypatch.setattr("qinglan.terminal._in_language", chinese().translate)
    if until == "gate":
        write_evaluation(RunDir(tmp_path), REASONS, 0.17)

    assert english_left(screen(RunDir(tmp_path), capsys, record(until))) == []


def lose_rows(folder: Path, reasons: list[str]) -> RunDir:
    run = RunDir(folder)
    run.files.mkdir()
    row = QuarantinedRow(id="r", tenant_id="t", where="row r", stage="generate", reason="", detail="")
    lines = [dump_line(row.model_copy(update={"reason": reason})) for reason in reasons]
    run.shown("generate_quarantine").write_bytes(b"".join(lines))
    return run


def test_lost_rows_are_told_by_cause_with_the_setting_that_helps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = lose_rows(tmp_path, ["truncated"] * 97 + ["refused"] * 3)

    print_summary(load_config("fivedoctors", "gpt"), run, record("generate"))
    for text in (capsys.readouterr().out, run.summary.read_text(encoding="utf-8")):
        assert "! generate: 100 of 482 rows are lost (20.7%)." in text
        assert "  97 as truncated. To do: raise gateway.teacher.max_output_tokens." in text
        assert "  3 as refused. To do: run again, or take another model in gateway.teacher." in text


CUT = "Next: raise gateway.teacher.max_output_tokens, which is 1,000, and run the same command again: the 97 cut"


@pytest.mark.parametrize(
    ("reasons", "begins"),
    [
        (["truncated"] * 97, CUT),
        (["truncated"] * 97 + ["refused"] * 40, CUT),
        (["truncated"] * 5, "Next: the same command with --until validate"),
        (["refused"] * 97, "Next: the same command with --until validate"),
        ([], "Next: the same command with --until validate"),
    ],
)
def test_the_next_step_after_many_cut_answers_is_a_higher_limit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], reasons: list[str], begins: str
) -> None:
    run = lose_rows(tmp_path, reasons)
    of = record("validate")
    of["ran"] = ("questions", "generate")

    [line] = [line for line in screen(run, capsys, of, "gpt").splitlines() if line.startswith("Next: ")]
    assert line.startswith(begins)
    assert "--until validate" in line


SHARED = (
    "! generate: 40 of 60 questions have a rewrite that 5 or more questions got; the most frequent, 40 times: 'Nope'"
)


@pytest.mark.parametrize(
    ("rewrites", "shared", "begins"),
    [
        (["Nope"] * 40 + [f"r{n}" for n in range(20)], 40, SHARED),
        (["Nope\x1b[2J"] * 60, 60, "! generate: 60 of 60 questions"),
        ([f"r{n}" for n in range(60)], 0, ""),
        (["Nope"] * 3 + [f"r{n}" for n in range(57)], 3, ""),
    ],
)
def test_one_rewrite_for_many_questions_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], rewrites: list[str], shared: int, begins: str
) -> None:
    run = RunDir(tmp_path)
    run.files.mkdir()
    fields = {"tenant_id": "t", "teacher": "t", "call": "c", "conversation_id": "c"}
    rows = [Rewrite(id=f"r{n}", question=f"q{n}", rewritten_query=text, **fields) for n, text in enumerate(rewrites)]
    run.shown("rewrites").write_bytes(b"".join(map(dump_line, rows)))
    of = record("generate")
    of["steps"]["generate"] = step({"rows": 60, "rewritten": 60, "same_rewrite": shared})

    lines = [line for line in screen(run, capsys, of, "gpt").splitlines() if "! generate" in line]
    assert len(lines) == bool(begins)
    assert not begins or lines[0].startswith(begins)
    assert "\x1b" not in "".join(lines)


@pytest.mark.parametrize(("uncounted", "is_reported"), [(0, False), (445, True)])
def test_answers_without_a_count_of_tokens_make_the_cost_an_upper_bound(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], uncounted: int, is_reported: bool
) -> None:
    money = {**MONEY, "uncounted": uncounted}

    text = screen(RunDir(tmp_path), capsys, record("generate", gateway=money), "gpt")
    assert ("! 445 answers came without a count of tokens" in text) is is_reported
    assert ("the cost is an upper bound" in text) is is_reported
