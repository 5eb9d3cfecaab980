"""python -m tests.cluster.plane up|down|status [FOLDER]"""

import argparse
import signal
import sys
import time
from pathlib import Path
from shlex import quote

from qinglan.errors import OutageError, QinglanError
from tests.cluster.plane.plane import down, ended_parts, status, up


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.plane", description="A real control plane, here.")
    parser.add_argument("what", choices=("up", "down", "status"))
    parser.add_argument("folder", nargs="?", type=Path, default=Path("runs/cluster"))
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # so that half a cluster is cleared away
    try:
        {"up": bring_up, "down": take_down, "status": show}[arguments.what](arguments.folder)
    except QinglanError as error:
        print(error, file=sys.stderr)
        raise SystemExit(error.exit_code) from error
    except KeyboardInterrupt as error:
        raise SystemExit(130) from error


def bring_up(folder: Path) -> None:
    began = time.monotonic()
    cluster_folder = up(folder)
    env, config = quote(str(cluster_folder.root / "env")), quote(str(cluster_folder.kubeconfig))
    print(f"The cluster runs ({time.monotonic() - began:.0f} s). Its MinIO and kubectl too: source {env}")
    print(f"export KUBECONFIG={config}")


def take_down(folder: Path) -> None:
    ended = down(folder)
    print(f"ended: {', '.join(record.part.name for record in ended)}" if ended else "nothing of ours ran here")


def show(folder: Path) -> None:
    print("\n".join(status(folder)))
    if ended := ended_parts(folder):
        raise OutageError(f"{ended} ended: see {folder / 'logs'}, then make cluster-down, and make cluster again.")


if __name__ == "__main__":
    main()
