"""How a server of ours listens."""

import socket

import pytest

from serving.http_server import drop_packets, listen


def test_an_answer_is_not_held_back_until_its_head_is_acknowledged() -> None:
    with listen("127.0.0.1", 0) as listening, socket.create_connection(listening.getsockname()):
        connection, _ = listening.accept()

        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_deaf_socket_has_the_connections_that_were_there_and_gets_no_other() -> None:
    with listen("127.0.0.1", 0) as listening, socket.create_connection(listening.getsockname()) as early:
        listening.setblocking(False)
        drop_packets(listening)

        with pytest.raises(TimeoutError):
            socket.create_connection(listening.getsockname(), timeout=0.1)
        taken, _ = listening.accept()
        with pytest.raises(BlockingIOError):
            listening.accept()
        early.sendall(b"sent after it")
        taken.settimeout(60)
        with taken:
            assert taken.recv(100) == b"sent after it"
