"""`make demo`: sample both tenants, run the thread for the first, and show what came out."""

import time
from pathlib import Path

from pipelines.config import load_config
from pipelines.executing import refuse_held
from pipelines.proof import show_audit, show_refusal
from pipelines.run import run_pipeline
from pipelines.summary import print_summary
from qinglan.samples import write_sample

TENANTS = ("fivedoctors", "chengla")


def run_demo(out: Path, conversations: int, seed: int = 0) -> None:
    for tenant in TENANTS:
        started = time.monotonic()
        counts = write_sample(tenant, out / "data" / tenant, conversations, seed)
        numbers = ", ".join(f"{value:,} {name}" for name, value in counts._asdict().items())
        print(f"✓ sample {tenant}: {numbers}  ({time.monotonic() - started:.1f} s)", flush=True)
    data = out / "data" / TENANTS[0]
    questions, knowledge_base = data / "questions.xlsx", data / "knowledge_base.jsonl"
    config = load_config(
        TENANTS[0], "demo", questions=questions, knowledge_base=knowledge_base,
        evaluate={"slices": str((data / "slices.jsonl").resolve())},
    )  # fmt: skip
    root = out / TENANTS[0]
    record = run_pipeline(config, root)
    print_summary(config, root, record)
    refuse_held(record)
    show_audit(root)


def run_demo_audit(out: Path) -> None:
    """One byte of what the demo's model was trained on is changed, in a copy."""
    show_refusal(out / TENANTS[0], "validated")
