"""From the sheet to a verdict as a user runs it, with trainings too short to learn much: the gate has to hold."""

import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pytest
import yaml

from pipelines.config import CONFIGS, TRAINING, merged
from qinglan.config import load_yaml
from qinglan.lineage.digests import digest
from qinglan.rewriter import Student, read_card
from qinglan.samples import write_sample

pytestmark = pytest.mark.slow

SHORT = {
    "base": {"tiny": {"hidden": 32, "layers": 2, "heads": 2, "steps": 120, "learning_rate": 6e-3}},
    "sft": {"epochs": 4.0, "evaluate_every": 5, "batch": 8},
    "ppo": {"steps": 2, "every": 1, "collection": 16, "batch": 16, "dev_rows": 16},
    "evaluate": {"examined_rows": 10, "agreement_rows": 5, "latency_rows": 3, "draws": 200, "blind_rows": 4},
}


class Ran(NamedTuple):
    code: int
    record: Any
    errors: str
    words: list[str]
    out: Path


def qinglan(words: list[str], out: Path) -> Ran:
    command = [sys.executable, "-c", "from pipelines.cli import main; main()", *words]
    run = subprocess.run(command, capture_output=True, text=True, timeout=1200, check=False)
    return Ran(run.returncode, orjson.loads(run.stdout or "null"), run.stderr, words, out)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """The run's first half, up to its last training."""
    folder = tmp_path_factory.mktemp("thread")
    write_sample("fivedoctors", folder, conversations=60, seed=5)
    profile = load_yaml(CONFIGS / "fivedoctors" / "demo.yaml")
    laptop = load_yaml(TRAINING / "laptop.yaml")
    (folder / "short.yaml").write_text(yaml.safe_dump(merged(merged(laptop, profile), SHORT)))
    words = ["run", "fivedoctors", "--profile", str(folder / "short.yaml"), "--out", str(folder / "run"), "--json"]
    words += ["--questions", str(folder / "questions.xlsx")]
    words += ["--knowledge-base", str(folder / "knowledge_base.jsonl")]
    run = qinglan([*words, "--until", "ppo"], folder / "run")
    return run._replace(words=words)


@pytest.fixture(scope="module")
def ran(trained: Ran) -> Ran:
    """The same command to its end."""
    assert trained.code == 0, trained.errors
    return qinglan(trained.words, trained.out)


def test_a_gate_that_holds_ends_the_run_with_its_reasons_and_its_own_exit_code(ran: Ran) -> None:
    assert ran.code == 7, ran.errors
    assert "The gate says hold: " in ran.errors
    assert ran.record["verdict"]["word"] == "hold" and ran.record["verdict"]["reasons"]
    assert not (ran.out / "files" / "release").exists()


def test_every_stage_before_the_gate_is_done_and_tied_to_the_one_before(ran: Ran) -> None:
    steps = ran.record["steps"]

    before = list(steps)[: list(steps).index("register")]
    assert [name for name, step in steps.items() if (step or {}).get("status") == "done"] == before
    made = {name: one["sha256"] for step in steps.values() if step for name, one in step.get("outputs", {}).items()}
    for step in ("sft", "ppo", "evaluate", "gate"):
        for name, used in steps[step]["inputs"].items():
            assert used["sha256"] == made[name]


def test_the_evaluation_is_about_the_models_and_the_test_of_this_run(ran: Ran) -> None:
    files = ran.out / "files"
    found = orjson.loads((files / "evaluation.json").read_bytes())

    assert found["digests"]["models"] == {"sft": digest(files / "sft_model"), "rl": digest(files / "rl_model")}
    assert found["digests"]["test"] == digest(files / "locked_test.jsonl")
    assert {"plain", "history", "teacher", "sft", "rl"} == set(found["systems"])
    assert {"rl_vs_teacher", "rl_vs_sft"} <= set(found["paired"])
    assert found["verdict"]["word"] == "hold"


def test_a_run_as_it_comes_is_not_held_for_a_leak_a_judge_or_a_parent(ran: Ran) -> None:
    found = orjson.loads((ran.out / "files" / "evaluation.json").read_bytes())

    assert {(part["same"], part["alike"]) for part in found["leaks"]["parts"].values()} == {(0, 0)}
    amiss = ("leak", "digests", "examiner", "compared with no rows", "another SFT model")
    assert not [reason for reason in found["verdict"]["reasons"] if any(word in reason for word in amiss)]


def test_the_report_is_one_page_with_the_trainings_curves(ran: Ran) -> None:
    page = (ran.out / "files" / "report.html").read_text(encoding="utf-8")

    assert page.count("<svg") >= 3
    assert "<script" not in page and "http://" not in page.replace("http://www.w3.org", "")


@pytest.mark.parametrize(("stage", "series"), [("sft", "validation"), ("ppo", "gold on dev")])
def test_each_training_has_a_page_with_its_curve(ran: Ran, stage: str, series: str) -> None:
    page = (ran.out / "files" / f"{stage}_curve.html").read_text(encoding="utf-8")

    assert page.startswith("<!doctype html>") and f">{series}</text>" in page
    assert f"{stage}_curve" in ran.record["steps"][stage]["outputs"]


def test_the_trained_models_are_whole_and_know_their_parents(ran: Ran) -> None:
    files = ran.out / "files"
    sft, rl = read_card(files / "sft_model"), read_card(files / "rl_model")

    assert sft.parents["base_model"] == digest(files / "base_model")
    assert digest(files / "sft_model") in rl.parents.values()
    assert sft.system_prompts == rl.system_prompts
    assert digest(files / "sft_model") != digest(files / "rl_model")
    assert Student.load(files / "rl_model").tokenizer("虾青素").input_ids


def test_what_was_trained_and_paid_is_neither_trained_nor_paid_again(trained: Ran, ran: Ran) -> None:
    for stage in ("sft", "ppo"):
        assert [run.record["steps"][stage]["facts"]["reused"] for run in (trained, ran)] == [0, 1]
    assert ran.record["steps"]["base"]["facts"]["cached"] == 1
    first, then = (
        {one["step"]: one["attempts"] for one in run.record["gateway"]["by_step"]} for run in (trained, ran)
    )
    assert first["generate"] > 0 and {step: then[step] for step in first} == first
