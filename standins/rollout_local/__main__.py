"""python -m standins.rollout_local FOLDER: carry out the rollouts in a folder, one after the other.

The program may be killed and started again at any time. A second controller of the same folder waits for the first.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from qinglan.errors import QinglanError
from qinglan.lineage.signing.trust import default_trust
from qinglan.terminal import say, say_error, use_language
from serving.rollout.cluster.release_verifier import StoreReleaseVerifier
from serving.rollout.history import HistorySigner
from serving.rollout.ports import Ports
from serving.rollout.reconciler import reconcile
from serving.rollout.state import State
from serving.rollout.timeline import TimelineFollower
from standins.rollout_local.evidence import LocalEvidence
from standins.rollout_local.ledger import FileLease, FileLedger, FileRollouts
from standins.rollout_local.service import SERVICE_NAME, FileTarget, service_files

RECONCILES_PER_STEP = 10
LONGEST_WAIT = 30.0


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m standins.rollout_local", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--metrics",
        action="append",
        default=[],
        metavar="URL",
        help="another server whose /metrics count: RAG, shadow",
    )
    options = parser.parse_args()
    use_language()
    try:
        run(options.folder, options.metrics)
    except QinglanError as error:
        say_error(error)
        sys.exit(error.exit_code)


def run(folder: Path, metrics: Sequence[str] = ()) -> None:
    """Carry out the rollouts one after the other until all have ended, then sign their histories."""
    service_files(folder).read(SERVICE_NAME)
    lease = FileLease(folder)
    try:
        while name := FileRollouts(folder).next():
            run_rollout(folder, name, lease, metrics)
        _sign_histories(folder)
    finally:
        lease.close()


def _sign_histories(folder: Path) -> None:
    """Sign all histories, also of rollouts whose controller was killed. A repeated call changes nothing."""
    signer = HistorySigner()
    for rollout in FileRollouts(folder).all():
        name = rollout["metadata"]["name"]
        signer.attach(folder.name, name, FileLedger(folder, name).read())


def run_rollout(folder: Path, name: str, lease: FileLease, metrics: Sequence[str]) -> State:
    """Carry out one rollout to its end, and print each decision."""
    ledger = FileLedger(folder, name)
    spec, state, _ = ledger.read()
    ports = Ports(
        ledger,
        FileTarget(folder),
        LocalEvidence(folder, spec.checks, metrics),
        StoreReleaseVerifier(spec.release, default_trust),
        time.time,
        lease.held,
    )
    follower = TimelineFollower(after=state.history[-1] if state.history else None)
    while state.phase != "Done":
        reconcile(ports)
        state = ledger.read().state
        for line in follower.lines(state, spec):
            say(line)
        time.sleep(min(spec.step_seconds / RECONCILES_PER_STEP, LONGEST_WAIT))
    say(f"{name}: {state.outcome}")
    return state


if __name__ == "__main__":
    main()
