"""python -m tests.cluster.plane up|down|status [FOLDER]"""

import argparse
import sys
import time
from pathlib import Path

from qinglan.errors import QinglanError
from tests.cluster.plane.plane import down, status, up


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.plane", description="A real control plane, here.")
    parser.add_argument("what", choices=("up", "down", "status"))
    parser.add_argument("folder", nargs="?", type=Path, default=Path("runs/cluster"))
    given = parser.parse_args()
    try:
        {"up": bring_up, "down": take_down, "status": show}[given.what](given.folder)
    except QinglanError as error:
        print(error, file=sys.stderr)
        raise SystemExit(error.exit_code) from None


def bring_up(folder: Path) -> None:
    began = time.monotonic()
    made = up(folder)
    print(
        f"The cluster runs ({time.monotonic() - began:.0f} s). Its MinIO and kubectl too: source {made.root / 'env'}"
    )
    print(f"export KUBECONFIG={made.kubeconfig}")


def take_down(folder: Path) -> None:
    ended = down(folder)
    print(f"ended: {', '.join(record.part.name for record in ended)}" if ended else "nothing of ours ran here")


def show(folder: Path) -> None:
    print("\n".join(status(folder)))


if __name__ == "__main__":
    main()
