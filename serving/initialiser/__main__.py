"""python -m serving.initialiser s3://qinglan/fivedoctors/releases/<digest> /mnt/models"""

import argparse
import sys
from pathlib import Path

from qinglan.errors import ConfigError
from qinglan.terminal import say
from serving.programs import exit_on_error


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m serving.initialiser", description="A release into a volume.")
    parser.add_argument("uri", help="STORE/releases/<digest>, and /model/adapter where merged weights are not wanted")
    parser.add_argument("into", type=Path, help="a folder that is there")
    arguments = parser.parse_args()
    with exit_on_error():
        say(run(arguments.uri, arguments.into), to=sys.stderr)


def run(uri: str, into: Path) -> str:
    from qinglan.lineage.signing.trust import default_trust
    from serving.initialiser.release_fetcher import fetch_release

    if not into.is_dir():
        raise ConfigError(f"{into}: no such folder. KServe mounts one; by hand, make it first.")
    return fetch_release(uri, into, default_trust())


if __name__ == "__main__":
    main()
