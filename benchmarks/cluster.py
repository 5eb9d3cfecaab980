"""Cost of the whole control plane beside a bare API server: seconds to come up, and memory.

python -m benchmarks.cluster --rounds 3

The bare one is kube-apiserver on etcd alone, of the same binaries with the same flags, until it says that it is
ready; whoever wants real admission, schemas and RBAC in tests starts at least these two. Both are started in turn.
"""

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks.report import report
from tests.cluster.build.binaries import build_all
from tests.cluster.plane import certs
from tests.cluster.plane.command_lines import Keys, parts, server
from tests.cluster.plane.plane import down, running
from tests.cluster.plane.ports import free_ports
from tests.cluster.plane.processes import Folder, admin_client, answering, records, resident, start, until, worked

TARGET_RATIO = 6.0
MEBIBYTE = 2**20


class Cost(NamedTuple):
    seconds: float
    processor: float
    """CPU seconds of all parts together; they say more than the clock where the machine has other work."""
    mebibytes: dict[str, int]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster")
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    began = time.perf_counter()
    cached = build_all()
    built = time.perf_counter() - began
    load = os.getloadavg()[0]
    bare, whole = [], []
    for _ in range(rounds):
        bare.append(bare_cost())
        whole.append(whole_cost())
        print(f"bare {bare[-1].seconds:.1f} s, whole {whole[-1].seconds:.1f} s", flush=True)
    ratio = statistics.median(it.seconds for it in whole) / statistics.median(it.seconds for it in bare)
    memory = whole[-1].mebibytes
    report(
        "cluster", ratio, TARGET_RATIO, ratio <= TARGET_RATIO,
        seconds=[it.seconds for it in whole], seconds_bare=[it.seconds for it in bare],
        processor_seconds=[it.processor for it in whole], processor_seconds_bare=[it.processor for it in bare],
        load_before=round(load, 1), mebibytes=memory | {"all": sum(memory.values())},
        binaries="cached" if cached else f"built in {built:.0f} s",
    )  # fmt: skip


def bare_cost() -> Cost:
    with tempfile.TemporaryDirectory() as root:
        folder, ports = Folder(Path(root)), free_ports()
        each = parts(folder, ports, Keys("bare", "bare-secret"))
        began = time.perf_counter()
        try:
            certs.make(folder.pki, server(ports))
            for name in ("etcd", "kube-apiserver"):
                start(folder, each[name], outlives=False)
            with admin_client(folder) as api:
                for name in ("etcd", "kube-apiserver"):
                    until(f"{name} is ready", answering(api, each[name]), folder)
            return cost(folder, time.perf_counter() - began)
        finally:
            down(folder.root)


def whole_cost() -> Cost:
    """Seconds until the last node is ready and KServe's webhook is called."""
    with tempfile.TemporaryDirectory() as root:
        began = time.perf_counter()
        with running(Path(root)) as folder:
            return cost(folder, time.perf_counter() - began)


def cost(folder: Folder, seconds: float) -> Cost:
    each = records(folder)
    memory = {it.part.name: resident(it) // MEBIBYTE for it in each}
    return Cost(round(seconds, 1), round(sum(map(worked, each)), 1), memory)


if __name__ == "__main__":
    main()
