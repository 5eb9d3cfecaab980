"""`make demo`: sample both tenants, run the pipeline for the first one, and show the results, even if the gate says
hold.

`make demo-style`: write a sample of labelled answers, run the style line on it, and ask the small model about a few
answers.
"""

import time
from pathlib import Path
from typing import Any

from commands.demo.altered_copy import check_audit, check_may_serve, show_refusal
from commands.demo.held_release import release_held
from commands.demo.loopback_rollout import roll_out
from commands.run.end_screen import print_style_summary, print_summary
from commands.run.run import run_pipeline, run_style
from pipelines.execute.execution import raise_if_held, run_lock
from pipelines.execute.rundir import ARTIFACT_FILES, RunDir
from pipelines.lines.config import load_config, load_style_config
from pipelines.lines.rewriter import RunConfig
from pipelines.lines.style import StyleRunConfig
from qinglan.config import load_yaml
from qinglan.errors import ConfigError
from qinglan.lineage.trace.release_folder import MODEL
from qinglan.processes.services import run_service
from qinglan.terminal import say
from standins.samples import write_sample
from standins.samples.style import write_style_sample

TENANTS = ("fivedoctors", "chengla")
UNSURE = 0.7
"""Confidence below which a prediction is printed as unsure. About a tenth of the test's predictions are below it;
about half of these are right."""

EXCHANGES = (
    ("这个产品有什么优缺点？", "这个产品确实有很多优点，但也存在一些限制，建议您根据自己的需求来判断是否合适。"),
    ("想把降压药停了改吃鱼油软胶囊", "为了您的安全，请先不要这样做，尽快咨询专业人士。"),
    ("想把降压药停了改吃鱼油软胶囊", "这款卖得最好，现在下单立减30元。"),
)


def run_demo(out: Path, conversations: int, seed: int = 0) -> None:
    root = out / TENANTS[0]
    # Without the lock, this would overwrite the sample that another demo in this folder still reads.
    with run_lock(RunDir(root)):
        for tenant in TENANTS:
            _sample(tenant, out / "data" / tenant, conversations, seed)
    data = out / "data" / TENANTS[0]
    questions, knowledge_base = data / "questions.xlsx", data / "knowledge_base.jsonl"
    config = load_config(
        TENANTS[0], "demo", questions=questions, knowledge_base=knowledge_base,
        evaluate={"slices": str((data / "slices.jsonl").resolve())},
    )  # fmt: skip
    record = run_pipeline(config, root)
    try:
        show_rest(root, record["verdict"])
    finally:  # last, so that it stays on the screen; also if the rollout failed, as on a busy machine
        print_summary(config, RunDir(root), record)
    say("One changed byte of the training data, and who notices: `make demo-audit`. Your own data: `qinglan init`.")


def show_rest(root: Path, verdict: dict[str, Any]) -> None:
    """Show the rollout and the audit, even if the gate says hold or the canary is rolled back."""
    run = RunDir(root)
    with run_lock(run):
        config = _config_of(run)
        if verdict.get("word") == "hold":
            release_held(config, run, verdict["reasons"])
        _show_rollout(config, root)
    check_audit(root, config.register_.store)


def run_demo_rollout(out: Path) -> None:
    run = RunDir(out / TENANTS[0])
    if not run.config.is_file():
        raise ConfigError(f"{run.root}: no run there. `make demo` makes one.")
    with run_lock(run):
        _show_rollout(_config_of(run), run.root)


def _show_rollout(config: RunConfig, root: Path) -> None:
    state = roll_out(config, root)
    if state.outcome != "Promoted":
        say(f"The rollout ended {state.outcome}: {'; '.join(state.reasons)}. That is a result too.")


def _config_of(run: RunDir) -> RunConfig:
    return RunConfig.parse(load_yaml(run.config), str(run.config))


def _sample(tenant: str, folder: Path, conversations: int, seed: int) -> None:
    started = time.monotonic()
    counts = write_sample(tenant, folder, conversations, seed)
    say(f"✓ sample {tenant}: {counts.in_words()}  ({time.monotonic() - started:.1f} s)")


def run_demo_audit(out: Path) -> None:
    show_refusal(out / TENANTS[0], "validated")


def run_style_demo(out: Path, rows: int, seed: int = 0) -> None:
    started, root = time.monotonic(), out / "run"
    run = RunDir(root)
    with run_lock(run):  # another demo in this folder may still read the sample
        counts = write_style_sample(out / "data", rows, seed)
    say(
        f"✓ sample: {counts.rows:,} labelled answers, {counts.meant / counts.rows:.1%} of them in the manner meant, "
        f"{counts.unlabelled:,} texts without a label  ({time.monotonic() - started:.1f} s)"
    )  # fmt: skip
    record = run_style(load_style_config("laptop", labelled=out / "data"), root)
    try:
        raise_if_held(record)
        check_audit(root, StyleRunConfig.parse(load_yaml(run.config), str(run.config)).register_.store)
        if (release := run.files / ARTIFACT_FILES["small_release"]).is_dir():
            check_may_serve(release)
            _ask_small_model(run, release / MODEL)
    finally:
        print_style_summary(run, record)


def _ask_small_model(run: RunDir, model: Path) -> None:
    """Serve the released int8 model as its runtime on a cluster does, and print its labels for EXCHANGES."""
    from qinglan.http.http_client import outages, sync_client

    options = ["--model", str(model), "--engine", "onnx", "--name", "style-small", "--port", "0"]
    with run_service("serving.style", options, run.logs / "style-small.log") as url:
        say("The released small model, int8, served: of answers that it has not seen")
        for question, answer in EXCHANGES:
            body = {"question": question, "answer": answer}
            with outages(f"{url}/predict", "See logs/style-small.log."), sync_client(timeout=30) as http:
                prediction = http.post(f"{url}/predict", json=body).raise_for_status().json()
            unsure = " (unsure)" if prediction["confidence"] < UNSURE else ""
            say(f"  {prediction['predicted_label']} {prediction['confidence']:.2f}{unsure}  {question} -> {answer}")
