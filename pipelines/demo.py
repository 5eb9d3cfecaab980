"""`make demo`: sample both tenants, run the thread for the first, and show what came out."""

import time
from pathlib import Path

from pipelines.config import RunConfig, load_config
from pipelines.executing import locked, refuse_held
from pipelines.loopback import roll_out
from pipelines.proof import show_audit, show_refusal
from pipelines.run import run_pipeline
from pipelines.rundir import RunDir
from pipelines.summary import print_summary
from qinglan.config import load_yaml
from qinglan.samples import write_sample
from qinglan.terminal import say

TENANTS = ("fivedoctors", "chengla")


def run_demo(out: Path, conversations: int, seed: int = 0) -> None:
    root = out / TENANTS[0]
    with locked(RunDir(root)):  # a demo that is under way reads what is about to be written
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
    if record["verdict"].get("word") == "hold":
        say("The gate holds: nothing is deployed, and nothing rolled out.")
    refuse_held(record)
    run_demo_rollout(out)
    show_audit(root)


def run_demo_rollout(out: Path) -> None:
    """From the demo's release to the end of its rollout."""
    root = out / TENANTS[0]
    run = RunDir(root)
    with locked(run):
        roll_out(RunConfig.parse(load_yaml(run.config), str(run.config)), root)


def _sample(tenant: str, folder: Path, conversations: int, seed: int) -> None:
    started = time.monotonic()
    counts = write_sample(tenant, folder, conversations, seed)
    numbers = ", ".join(f"{value:,} {name}" for name, value in counts._asdict().items())
    say(f"✓ sample {tenant}: {numbers}  ({time.monotonic() - started:.1f} s)")


def run_demo_audit(out: Path) -> None:
    """One byte of what the demo's model was trained on is changed, in a copy."""
    show_refusal(out / TENANTS[0], "validated")
