"""Free ports, each found by one process alone: a cluster takes its ports one after the other, for seconds."""

import random
import socket
from contextlib import ExitStack
from typing import NamedTuple

from qinglan.errors import OutageError
from qinglan.processes.services import UNASSIGNED_PORTS

TRIES = 200

_claims: list[socket.socket] = []
"""Held until this process ends."""


class Ports(NamedTuple):
    etcd: int
    etcd_peer: int
    apiserver: int
    controller_manager: int
    scheduler: int
    kwok: int
    kserve_webhook: int
    kserve_metrics: int
    kserve_health: int
    training_webhook: int
    training_metrics: int
    training_health: int
    minio: int
    minio_console: int


def free_ports() -> Ports:
    return Ports(*pick_ports(len(Ports._fields)))


def free_port() -> int:
    (port,) = pick_ports(1)
    return port


def pick_ports(count: int) -> list[int]:
    with ExitStack() as held:
        ports: list[int] = []
        for port in random.sample(UNASSIGNED_PORTS, TRIES):
            probe = held.enter_context(socket.socket())
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            if not _claim(port):
                continue
            ports.append(port)
            if len(ports) == count:
                return ports
    raise OutageError(
        f"Of {TRIES} ports between {UNASSIGNED_PORTS.start} and {UNASSIGNED_PORTS.stop}, only {len(ports)} are free."
    )


def _claim(port: int) -> bool:
    """Reserve a port for this process; False if another process has reserved it.

    A server binds its port only when it starts; until then another process would find the port free, too. The
    reservation is a socket name in the kernel (Linux), released when this process ends.
    """
    claim = socket.socket(socket.AF_UNIX)
    try:
        claim.bind(f"\0qinglan-port-{port}")
    except OSError:
        claim.close()
        return False
    _claims.append(claim)
    return True
