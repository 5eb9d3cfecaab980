"""What the whole control plane costs beside a bare API server: seconds to come up, and memory.

python -m benchmarks.cluster --rounds 3

The bare one is kube-apiserver on etcd alone, of the same binaries with the same flags, until it says that it is
ready; whoever wants real admission, schemas and RBAC in tests starts at least these two. Both are started in turn.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from benchmarks.report import report
from tests.cluster.binaries import build_all
from tests.cluster.plane import certs
from tests.cluster.plane.parts import Keys, parts, server
from tests.cluster.plane.plane import down, running
from tests.cluster.plane.ports import free_ports
from tests.cluster.plane.processes import Folder, answering, asking, records, resident, start, until

TARGET_RATIO = 6.0
MEBIBYTE = 2**20


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster")
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    began = time.perf_counter()
    cached = build_all()
    built = time.perf_counter() - began
    bare, whole = [], []
    memory: dict[str, int] = {}
    for _ in range(rounds):
        bare.append(seconds_bare())
        seconds, memory = seconds_whole()
        whole.append(seconds)
        print(f"bare {bare[-1]:.1f} s, whole {whole[-1]:.1f} s", flush=True)
    ratio = statistics.median(whole) / statistics.median(bare)
    report(
        "cluster", ratio, TARGET_RATIO, ratio <= TARGET_RATIO,
        seconds=[round(it, 1) for it in whole], seconds_bare=[round(it, 1) for it in bare],
        mebibytes=memory | {"all": sum(memory.values())}, binaries="cached" if cached else f"built in {built:.0f} s",
    )  # fmt: skip


def seconds_bare() -> float:
    with tempfile.TemporaryDirectory() as root:
        folder, ports = Folder(Path(root)), free_ports()
        each = parts(folder, ports, Keys("bare", "bare-secret"))
        began = time.perf_counter()
        try:
            certs.make(folder.pki, server(ports))
            for name in ("etcd", "kube-apiserver"):
                start(folder, each[name], outlives=False)
            with asking(folder) as api:
                for name in ("etcd", "kube-apiserver"):
                    until(f"{name} is ready", answering(api, each[name]), folder)
            return time.perf_counter() - began
        finally:
            down(folder.root)


def seconds_whole() -> tuple[float, dict[str, int]]:
    """Until the last node is ready and KServe's webhook asked; and the memory of each part then."""
    with tempfile.TemporaryDirectory() as root:
        began = time.perf_counter()
        with running(Path(root)) as folder:
            seconds = time.perf_counter() - began
            return seconds, {it.part.name: resident(it) // MEBIBYTE for it in records(folder)}


if __name__ == "__main__":
    main()
