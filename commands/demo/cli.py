"""`qinglan demo`, `demo-audit` and `demo-rollout`."""

from pathlib import Path
from typing import Annotated

import typer


def demo(
    conversations: Annotated[int, typer.Option(min=8, help="Sample conversations for each tenant.")] = 1600,
    out: Annotated[Path, typer.Option(help="Where samples and the run go.")] = Path("runs/demo"),
) -> None:
    """The whole thread on this machine: sample both tenants, run one of them, whatever its gate says."""
    from commands.demo.demo import run_demo

    run_demo(out, conversations)


def demo_audit(
    out: Annotated[Path, typer.Option(help="Where `qinglan demo` has put its run.")] = Path("runs/demo"),
) -> None:
    """Change one byte of what the demo's model came from, in a copy, and see it refused."""
    from commands.demo.demo import run_demo_audit

    run_demo_audit(out)


def demo_rollout(
    out: Annotated[Path, typer.Option(help="Where `qinglan demo` has put its run.")] = Path("runs/demo"),
) -> None:
    """Roll the demo's model out once more: real servers on loopback, users who are played, the controller between."""
    from commands.demo.demo import run_demo_rollout

    run_demo_rollout(out)
