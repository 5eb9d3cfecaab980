"""python -m tests.kfp.backend up|down|status|check|run|canary|page|picture"""

import argparse
import signal
import sys
import time
from pathlib import Path
from shlex import quote

from qinglan.errors import OutageError, QinglanError
from tests.cluster.plane.processes import Folder, records, runs
from tests.kfp.backend.backend import PROFILE, down, require_running, status, up
from tests.kfp.backend.runs.picture import read_click, read_fill, take_picture


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.kfp.backend", description="A real KFP back end, here.")
    parser.add_argument("--folder", type=Path, default=Path("runs/kfp"))
    parser.add_argument("--cluster", type=Path, default=Path("runs/cluster"))
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("up").add_argument("source", type=Path, help="a clone of kubeflow/pipelines")
    for name in ("down", "status", "check", "page"):
        commands.add_parser(name)
    run_options = commands.add_parser("run")
    run_options.add_argument("--conversations", type=int, default=1600)
    run_options.add_argument("--seed", type=int, default=0, help="of the sample")
    canary_options = commands.add_parser("canary")
    canary_options.add_argument("kinds", nargs="*", metavar="good|bad", help="in this order; by default both")
    picture_options = commands.add_parser("picture")
    picture_options.add_argument("out", type=Path)
    picture_options.add_argument("route", help="such as '#/runs/details/RUN_ID'")
    picture_options.add_argument(
        "--click",
        dest="acts",
        action="append",
        type=read_click,
        default=[],
        metavar="TEXT",
        help="in the order given",
    )
    picture_options.add_argument("--fill", dest="acts", action="append", type=read_fill, metavar="LABEL=TEXT")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # so that half a back end is cleared away
    try:
        if options.command not in ("up", "down", "status"):
            require_running(Folder(options.folder.resolve()))
        COMMANDS[options.command](options)
    except QinglanError as error:
        print(error, file=sys.stderr)
        raise SystemExit(error.exit_code) from error
    except KeyboardInterrupt as error:
        raise SystemExit(130) from error


def bring_up(options: argparse.Namespace) -> None:
    began = time.monotonic()
    folder = up(options.folder, options.cluster, options.source)
    print(f"KFP runs ({time.monotonic() - began:.0f} s). `qinglan submit` finds it after:")
    print(f"source {quote(str(folder.root / 'env'))}")


def take_down(options: argparse.Namespace) -> None:
    ended = down(options.folder)
    print(f"ended: {', '.join(record.part.name for record in ended)}" if ended else "nothing of KFP ran here")


def show(options: argparse.Namespace) -> None:
    print("\n".join(status(options.folder)))
    ended = [record.part.name for record in records(Folder(options.folder.resolve())) if not runs(record)]
    if ended:
        raise OutageError(
            f"{', '.join(ended)} ended: see {options.folder / 'logs'}, then make kfp-down, and make kfp."
        )


def check(options: argparse.Namespace) -> None:
    from tests.kfp.backend.check import run_two_steps

    run_two_steps(Folder(options.folder.resolve()))


def run(options: argparse.Namespace) -> None:
    from tests.kfp.backend.runs.rewriter_run import run_rewriter

    run_rewriter(Folder(options.folder.resolve()), options.cluster, options.conversations, options.seed)


def canary(options: argparse.Namespace) -> None:
    from tests.kfp.backend.runs.canary import run_canaries

    run_canaries(Folder(options.folder.resolve()), options.cluster, options.kinds)


def page(options: argparse.Namespace) -> None:
    from tests.kfp.backend.page import show_page

    print(f"KFP's page: {show_page(Folder(options.folder.resolve()), options.cluster, PROFILE)}")


def picture(options: argparse.Namespace) -> None:
    from tests.kfp.backend.page import show_page

    address = show_page(Folder(options.folder.resolve()), options.cluster, PROFILE)
    take_picture(f"{address}/{options.route}", options.acts, options.out)


COMMANDS = {
    "up": bring_up, "down": take_down, "status": show, "check": check, "run": run, "canary": canary, "page": page,
    "picture": picture,
}  # fmt: skip


if __name__ == "__main__":
    main()
