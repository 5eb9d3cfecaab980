"""python -m tests.kfp.backend up|down|status|check|run|canary|page"""

import argparse
import time
from pathlib import Path
from shlex import quote

from tests.cluster.build.go_command import exits_with_a_code
from tests.cluster.plane.plane import down, show
from tests.cluster.plane.processes import Folder
from tests.kfp.backend.backend import OWNED, PROFILE, require_running, up

ROOT, CLUSTER = Path("runs/kfp"), Path("runs/cluster")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.kfp.backend", description="A real KFP back end, here.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("up").add_argument("source", type=Path, help="a clone of kubeflow/pipelines")
    for name in ("down", "status", "check", "canary", "page"):
        commands.add_parser(name)
    run_options = commands.add_parser("run")
    run_options.add_argument("--conversations", type=int, default=1600)
    run_options.add_argument("--seed", type=int, default=0, help="of the sample")
    options = parser.parse_args()
    with exits_with_a_code():
        if options.command == "up":
            bring_up(options.source)
        elif options.command == "down":
            down(ROOT, "kfp", OWNED)
        elif options.command == "status":
            show(ROOT, "kfp")
        else:
            use(options, Folder(ROOT.resolve()))


def bring_up(source: Path) -> None:
    began = time.monotonic()
    folder = up(ROOT, CLUSTER, source)
    print(f"KFP runs ({time.monotonic() - began:.0f} s). `qinglan submit` finds it after:")
    print(f"source {quote(str(folder.root / 'env'))}")


def use(options: argparse.Namespace, folder: Folder) -> None:
    """Carry out a command that needs a running KFP."""
    from tests.kfp.backend.check import run_two_steps
    from tests.kfp.backend.page import show_page
    from tests.kfp.backend.runs.canary import run_canaries
    from tests.kfp.backend.runs.rewriter_run import run_rewriter

    require_running(folder)
    if options.command == "check":
        run_two_steps(folder)
    elif options.command == "run":
        run_rewriter(folder, CLUSTER, options.conversations, options.seed)
    elif options.command == "canary":
        run_canaries(folder, CLUSTER)
    else:
        print(f"KFP's page: {show_page(folder, CLUSTER, PROFILE)}")


if __name__ == "__main__":
    main()
