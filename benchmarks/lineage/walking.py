"""A walk over many statements, beside opening and verifying the same envelopes one after the other and nothing else.

Each size and kind runs in a process of its own, so that memory is its own: `... walking KIND SIZE FOLDER`
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.lineage.world import World, write_world
from qinglan.lineage.auditing.descendants import which_models
from qinglan.lineage.signing.dsse import open_envelope, verify_signature
from qinglan.lineage.signing.trust import load_trust, save_trust
from qinglan.lineage.trace.evidence import Evidence, read_statements
from qinglan.lineage.trace.walk import findings_of, walk

KINDS = ("bare", "walk", "descendants")


class Folder(Evidence):
    def __init__(self, folder: Path) -> None:
        self.statements = lambda: read_statements(folder)  # type: ignore[method-assign]


def measure(artifacts: int, kinds: tuple[str, ...] = KINDS) -> dict[str, Any]:
    """Seconds and memory of each kind of work on one graph."""
    with tempfile.TemporaryDirectory() as folder:
        world = write_world(Path(folder), artifacts)
        save_trust(Path(folder) / "trust.yaml", world.policy)
        (Path(folder) / "world.json").write_text(json.dumps([world.last, world.root, world.statements]))
        figures: dict[str, Any] = {}
        for kind in kinds:
            command = [sys.executable, "-m", "benchmarks.lineage", "walking", kind, folder]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            figures[kind] = json.loads(done.stdout.splitlines()[-1])
            print(f"{artifacts:,} artifacts, {kind}: {figures[kind]}", flush=True)
    return figures


def run(kind: str, folder: Path) -> None:
    """One kind, in this process."""
    last, root, statements = json.loads((folder / "world.json").read_text())
    world = World(folder / "lineage", load_trust(folder / "trust.yaml"), last, root, statements)
    work: dict[str, Callable[[World], dict[str, Any]]] = {
        "bare": bare, "walk": walked, "descendants": descendants,
    }  # fmt: skip
    started, cpu = time.perf_counter(), time.process_time()
    figures = work[kind](world)
    times = {"seconds": time.perf_counter() - started, "cpu_seconds": time.process_time() - cpu}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(json.dumps({**{name: round(value, 2) for name, value in times.items()}, "megabytes": peak, **figures}))


def bare(world: World) -> dict[str, Any]:
    for where, sealed in read_statements(world.folder):
        envelope = open_envelope(sealed, where)
        [signature] = envelope.signatures
        assert verify_signature(envelope, signature, world.policy.keys[signature.key].key)
    return {}


def walked(world: World) -> dict[str, Any]:
    graph = walk([world.last], Folder(world.folder), world.policy, "", now=datetime.now(UTC))
    assert len(graph.things) == world.statements + 1
    assert not list(findings_of(graph))
    return {}


def descendants(world: World) -> dict[str, Any]:
    """All descendants of the root."""
    figures = which_models(world.root, [world.folder], world.policy)
    assert figures[0].total == world.statements
    return {}
