"""Only a worker with the token of the job joins its head; the connection of any other is closed."""

import json
import socket
import time

import pytest

from qinglan.jobs.inside.rendezvous import JsonConnection, RendezvousServer, connect_to_head
from qinglan.processes.services import free_port

TOKEN = "ab" * 32
SECONDS = 60.0
"""Guards against a hang alone."""


@pytest.mark.parametrize("token", ["another", "ä" * 64, "\ud800", 7, None])
def test_a_stranger_is_sent_away_whatever_its_token_is(token: object) -> None:
    port = free_port()
    head = RendezvousServer(port, TOKEN, nodes=2)

    with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as stranger:
        stranger.sendall(json.dumps({"token": token, "rank": 1}).encode() + b"\n")
        assert stranger.recv(1) == b""
    assert head.missing() == [1]
    head.dismiss(0, 0.0)


def test_a_connection_that_breaks_at_once_is_not_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    head, until = RendezvousServer(port, TOKEN, nodes=2), time.monotonic() + SECONDS
    connections: list[socket.socket] = []

    class Connection(JsonConnection):
        def __init__(self, connected: socket.socket) -> None:
            connections.append(connected)
            if len(connections) == 1:
                raise ConnectionResetError
            super().__init__(connected)

    monkeypatch.setattr("qinglan.jobs.inside.rendezvous.JsonConnection", Connection)
    with socket.create_connection(("127.0.0.1", port), timeout=SECONDS):
        while not connections and time.monotonic() < until:
            time.sleep(0.01)
    worker = connect_to_head("127.0.0.1", port, {"token": TOKEN, "rank": 1}, SECONDS)
    while head.missing() and time.monotonic() < until:
        time.sleep(0.01)

    assert worker is not None and head.missing() == []
    worker.close()
    head.dismiss(0, 0.0)
    assert {connection.fileno() for connection in connections} == {-1}
