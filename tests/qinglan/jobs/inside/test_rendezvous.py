"""Only a worker with the token of the job joins its head; the connection of any other is closed."""

import json
import socket

import pytest

from qinglan.jobs.inside.rendezvous import RendezvousServer
from qinglan.services import free_port

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
