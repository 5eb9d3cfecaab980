"""python -m serving.initialiser s3://qinglan/fivedoctors/releases/<digest> /mnt/models"""

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from qinglan.errors import ConfigError, QinglanError

if TYPE_CHECKING:
    from qinglan.lineage.trust import TrustPolicy

TRUST_VARIABLE = "QINGLAN_TRUST"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m serving.initialiser", description="A release into a volume.")
    parser.add_argument("uri", help="STORE/releases/<digest>, and /model/adapter where merged weights are not wanted")
    parser.add_argument("into", type=Path, help="a folder that is there")
    given = parser.parse_args()
    try:
        print(run(given.uri, given.into), file=sys.stderr)
    except QinglanError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(error.exit_code)


def run(uri: str, into: Path) -> str:
    from serving.initialiser.fetching import fetch

    if not into.is_dir():
        raise ConfigError(f"{into}: no such folder. KServe mounts one; by hand, make it first.")
    return fetch(uri, into, read_trust(os.environ.get(TRUST_VARIABLE, "")))


def read_trust(text: str) -> "TrustPolicy":
    """The house's trust policy, from the environment: a storage container of KServe has no volumes of its own."""
    import yaml

    from qinglan.lineage.trust import TrustPolicy

    if not text.strip():
        raise ConfigError(
            f"{TRUST_VARIABLE}: no trust policy. `kubectl create configmap qinglan-trust --from-file=trust.yaml` in "
            "the pod's namespace says whose signatures count."
        )
    try:
        values = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"{TRUST_VARIABLE}: not readable as YAML: {error}") from None
    return TrustPolicy.parse(values, TRUST_VARIABLE)


if __name__ == "__main__":
    main()
