"""How S3 is reached, and what is said when something answers that is no S3 of ours."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from qinglan.errors import ConfigError, OutageError
from qinglan.store import Store, open_store
from qinglan.store.s3_connection import S3Settings

SET = {
    "QINGLAN_S3_ENDPOINT": "http://127.0.0.1:9000", "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_REGION": "us-east-1",
}  # fmt: skip


@contextmanager
def answering(status: int, body: bytes = b"", date: str = "") -> Iterator[str]:
    """A server that says the same to everything, at this date where one is named."""

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Content-Type", "application/xml" if body.startswith(b"<Error>") else "text/html")
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_PUT = do_HEAD = answer

        def date_time_string(self, timestamp: float | None = None) -> str:
            return date or super().date_time_string(timestamp)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_missing_s3_variables_are_named() -> None:
    with pytest.raises(ConfigError, match="set QINGLAN_S3_ENDPOINT, AWS_SECRET_ACCESS_KEY in the environment"):
        open_store("s3://bucket", {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": ""})


@pytest.mark.parametrize(
    "address",
    ["s3://", "s3:///prefix", "s3://Bucket", "s3://b", "s3://bucket/../other", "s3://bucket//a", "s3://bucket?a=1",
     "s3://a..b", "s3://127.0.0.1/bucket", "s3://key:secret@bucket/a"],
)  # fmt: skip
def test_an_address_that_is_no_bucket_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match="not s3://bucket/prefix"):
        open_store(address, SET)


@pytest.mark.parametrize(
    "endpoint",
    ["127.0.0.1:9000", "ftp://host", "http://host/path", "http://user:word@host", "http://host:port", "http://"],
)
def test_an_endpoint_is_a_scheme_and_a_host_and_is_not_repeated(endpoint: str) -> None:
    with pytest.raises(ConfigError, match="QINGLAN_S3_ENDPOINT: not http") as error:
        open_store("s3://bucket", {**SET, "QINGLAN_S3_ENDPOINT": endpoint})

    assert "word" not in str(error.value)


def test_settings_do_not_show_their_secrets() -> None:
    assert "secret" not in repr(S3Settings.of("s3://bucket", {**SET, "AWS_SESSION_TOKEN": "secret"}))


def test_a_server_that_ignores_conditions_keeps_no_names() -> None:
    with (
        answering(200) as endpoint,
        pytest.raises(ConfigError, match="ignores If-None-Match, so two writers could both win"),
    ):
        open_store("s3://bucket", {**SET, "QINGLAN_S3_ENDPOINT": endpoint}).backend.create("key", b"data")


@pytest.mark.parametrize(
    "ask",
    [
        lambda store: store.has("0" * 64),
        lambda store: list(store.names()),
        lambda store: store.backend.create("a", b"a"),
    ],
)
@pytest.mark.parametrize(("status", "body"), [(503, b""), (500, b"<html>busy"), (403, b"<html>proxy"), (302, b"")])
def test_an_answer_that_is_not_s3s_is_an_outage(ask: Callable[[Store], object], status: int, body: bytes) -> None:
    with answering(status, body) as endpoint, pytest.raises(OutageError, match=f"bucket: the S3 at {endpoint}"):
        ask(open_store("s3://bucket", {**SET, "QINGLAN_S3_ENDPOINT": endpoint}))


REFUSED = b"<Error><Code>%s</Code><Message>no</Message><Resource>/bucket</Resource></Error>"
LATER = timedelta(hours=3, minutes=12)


@pytest.mark.parametrize("code", [b"RequestTimeTooSkewed", b"SignatureDoesNotMatch", b"AccessDenied"])
@pytest.mark.parametrize("ahead", [LATER, -LATER])
def test_a_refusal_for_a_wrong_clock_says_by_how_much_it_is_wrong(code: bytes, ahead: timedelta) -> None:
    date = format_datetime(datetime.now(UTC) + ahead, usegmt=True)
    with answering(403, REFUSED % code, date) as endpoint, pytest.raises(ConfigError) as error:
        list(open_store("s3://bucket", {**SET, "QINGLAN_S3_ENDPOINT": endpoint}).names())

    assert f"this machine's clock differs by 3.2 h from that of the S3 at {endpoint}. Set the clock" in str(
        error.value
    )


@pytest.mark.parametrize(
    ("code", "message"),
    [(b"SignatureDoesNotMatch", "Check AWS_ACCESS_KEY_ID"), (b"AccessDenied", "Let this key do")],
)
def test_a_refusal_under_the_right_clock_is_not_put_down_to_it(code: bytes, message: str) -> None:
    with answering(403, REFUSED % code) as endpoint, pytest.raises(ConfigError, match=message) as error:
        list(open_store("s3://bucket", {**SET, "QINGLAN_S3_ENDPOINT": endpoint}).names())

    assert "clock" not in str(error.value)
