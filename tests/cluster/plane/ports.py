"""Free ports, asked for together so that no two are the same."""

import random
import socket
from contextlib import ExitStack
from typing import NamedTuple

from qinglan.errors import OutageError

RANGE = range(20000, 30000)
"""Below the ports that the kernel hands to outgoing connections, which could take one before its server does."""
TRIES = 200


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
    with ExitStack() as held:
        found: list[int] = []
        for port in random.sample(RANGE, TRIES):
            asked = held.enter_context(socket.socket())
            try:
                asked.bind(("127.0.0.1", port))
            except OSError:
                continue
            found.append(port)
            if len(found) == len(Ports._fields):
                return Ports(*found)
    raise OutageError(
        f"Of {TRIES} ports between {RANGE.start} and {RANGE.stop}, fewer than {len(found) + 1} are free."
    )
