"""python -m standins.rollout_local FOLDER: carry out the rollouts in a folder, one after the other.

The program may be killed and started again at any time. A second controller of the same folder waits for the first.
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

from qinglan.lineage.signing.trust import default_trust
from qinglan.terminal import say, use_language
from serving.programs import exit_on_error
from serving.rollout.cluster.release_verifier import prove_release
from serving.rollout.history import HistorySigner
from serving.rollout.ports import Ports
from serving.rollout.reconciler import reconcile
from serving.rollout.state import State
from serving.rollout.timeline import TimelineFollower
from standins.rollout_local.evidence import LocalEvidence
from standins.rollout_local.ledger import FileLease, FileLedger, FileRollouts
from standins.rollout_local.object_files import ObjectFiles
from standins.rollout_local.service import SERVICE_NAME, FileTarget

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
    with exit_on_error():
        run(options.folder, options.metrics)


def run(folder: Path, metrics: Sequence[str] = ()) -> None:
    """Carry out the rollouts one after the other until all have ended, then sign their histories."""
    ObjectFiles(folder).read(SERVICE_NAME)
    lease = FileLease(folder)
    try:
        while name := FileRollouts(folder).next():
            run_rollout(folder, name, lease, metrics)
        # All histories, also those of rollouts whose controller was killed; a repeated call changes nothing.
        signer = HistorySigner()
        for rollout in FileRollouts(folder).all():
            name = rollout["metadata"]["name"]
            signer.attach(folder.name, name, FileLedger(folder, name).read())
    finally:
        lease.close()


def run_rollout(folder: Path, name: str, lease: FileLease, metrics: Sequence[str]) -> State:
    """Carry out one rollout to its end, and print each decision."""
    ledger = FileLedger(folder, name)
    spec, state, _ = ledger.read()
    ports = Ports(
        ledger,
        FileTarget(folder),
        LocalEvidence(folder, spec.checks, metrics).since,
        lambda uri: prove_release(uri, spec.release, default_trust()),
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
