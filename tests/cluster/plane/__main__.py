"""python -m tests.cluster.plane up|down|status [FOLDER]"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from shlex import quote

from tests.cluster.build.go_command import exits_with_a_code
from tests.cluster.plane.plane import down, show, up


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.plane", description="A real control plane, here.")
    parser.add_argument("what", choices=("up", "down", "status"))
    parser.add_argument("folder", nargs="?", type=Path, default=Path("runs/cluster"))
    arguments = parser.parse_args()
    commands: dict[str, Callable[[Path], None]] = {"up": bring_up, "down": down, "status": show}
    with exits_with_a_code():
        commands[arguments.what](arguments.folder)


def bring_up(folder: Path) -> None:
    began = time.monotonic()
    cluster_folder = up(folder)
    env, config = quote(str(cluster_folder.root / "env")), quote(str(cluster_folder.kubeconfig))
    print(f"The cluster runs ({time.monotonic() - began:.0f} s). Its MinIO and kubectl too: source {env}")
    print(f"export KUBECONFIG={config}")


if __name__ == "__main__":
    main()
