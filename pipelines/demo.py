"""`make demo`: sample both tenants, run the thread for the first, and show what came out, whatever its gate says."""

import time
from pathlib import Path
from typing import Any

from pipelines.config import load_config
from pipelines.demo_audit import show_audit, show_refusal
from pipelines.execution import run_lock
from pipelines.held_release import release_held
from pipelines.loopback_rollout import roll_out
from pipelines.rewriter import RunConfig
from pipelines.run import run_pipeline
from pipelines.rundir import RunDir
from pipelines.summary import print_summary
from qinglan.config import load_yaml
from qinglan.errors import ConfigError
from qinglan.terminal import say
from standins.samples import write_sample

TENANTS = ("fivedoctors", "chengla")


def run_demo(out: Path, conversations: int, seed: int = 0) -> None:
    root = out / TENANTS[0]
    with run_lock(RunDir(root)):  # a demo that is under way reads what is about to be written
        for tenant in TENANTS:
            _sample(tenant, out / "data" / tenant, conversations, seed)
    data = out / "data" / TENANTS[0]
    questions, knowledge_base = data / "questions.xlsx", data / "knowledge_base.jsonl"
    config = load_config(
        TENANTS[0], "demo", questions=questions, knowledge_base=knowledge_base,
        evaluate={"slices": str((data / "slices.jsonl").resolve())},
    )  # fmt: skip
    record = run_pipeline(config, root)
    print_summary(config, root, record)
    show_rest(root, record["verdict"])


def show_rest(root: Path, verdict: dict[str, Any]) -> None:
    """From the verdict to the audit, whatever the verdict is: a hold, and a canary taken back, are results too."""
    run = RunDir(root)
    with run_lock(run):
        config = _config_of(run)
        if verdict.get("word") == "hold":
            release_held(config, run, verdict["reasons"])
        _show_rollout(config, root)
    show_audit(root, config.register_.store)


def run_demo_rollout(out: Path) -> None:
    """From the demo's release to the end of its rollout."""
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
    """The resolved configuration of a demo's run."""
    return RunConfig.parse(load_yaml(run.config), str(run.config))


def _sample(tenant: str, folder: Path, conversations: int, seed: int) -> None:
    started = time.monotonic()
    counts = write_sample(tenant, folder, conversations, seed)
    numbers = ", ".join(f"{value:,} {name}" for name, value in counts._asdict().items())
    say(f"✓ sample {tenant}: {numbers}  ({time.monotonic() - started:.1f} s)")


def run_demo_audit(out: Path) -> None:
    """One byte of what the demo's model was trained on is changed, in a copy."""
    show_refusal(out / TENANTS[0], "validated")
