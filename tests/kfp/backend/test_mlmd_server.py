"""KFP's page asks ML Metadata in gRPC-web: its two forms are answered like the plain call."""

import base64
import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.kfp.backend.mlmd_server import SERVICE, web_answer, web_server

FRAME = b"\x00\x00\x00\x00\x03abc"
FAILED = "no such artifact"


def echo(request: bytes) -> tuple[bytes, str, int]:
    return (b"", FAILED, 5) if request == b"???" else (request[::-1], "", 0)


@contextmanager
def serving() -> Iterator[int]:
    server = web_server({"GetArtifacts": echo}, 0)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def post(port: int, method: str, body: bytes, kind: str) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("POST", f"/{SERVICE}/{method}", body, {"content-type": kind})
    answer = connection.getresponse().read()
    connection.close()
    return answer


@pytest.mark.parametrize("text", [False, True])
def test_a_call_in_either_form_comes_to_the_engine_and_back(text: bool) -> None:
    kind = "application/grpc-web-text" if text else "application/grpc-web+proto"
    with serving() as port:
        answer = post(port, "GetArtifacts", base64.b64encode(FRAME) if text else FRAME, kind)

    frames = base64.b64decode(answer) if text else answer
    assert frames == b"\x00\x00\x00\x00\x03cba" + web_answer(b"", "", 0)[5:]
    assert b"grpc-status:0" in frames


def test_an_error_of_the_engine_has_its_code_and_no_data() -> None:
    with serving() as port:
        answer = post(port, "GetArtifacts", b"\x00\x00\x00\x00\x03???", "application/grpc-web")

    assert answer[0] == 0x80
    assert b"grpc-status:5\r\ngrpc-message:no such artifact" in answer
