"""A request is the shadow's, and so in no count of users, by the shadow's token alone."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from qinglan.errors import ConfigError
from qinglan.kubernetes.shadow_token import SHADOW_HEADER, VARIABLE, read_shadow_token
from tests.serving.model_servers import REQUEST, V1, Serve, Served

TOKEN = "0123456789abcdef" * 4
REQUESTS = "qinglan_rewriter_requests_total"
NOT_THE_TOKEN = ["", "1", "true", TOKEN[:-1], f"{TOKEN}0", TOKEN.upper(), f"{TOKEN},{TOKEN}", "Ä" * 64]


@pytest.fixture(scope="module")
def shadowed(serve: Serve) -> Iterator[Served]:
    with ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(VARIABLE, TOKEN)
            running = stack.enter_context(serve())
        yield running


def ask(served: Served, header: str) -> tuple[float, float]:
    """Requests that were counted as the shadow's, and as users'."""
    before = [served.counted(REQUESTS, outcome=outcome) for outcome in ("shadow", "answered")]
    answer = served.http.post(
        V1, json={"instances": [REQUEST]}, headers={SHADOW_HEADER.encode(): header.encode("latin-1")}
    )
    assert answer.status_code == 200
    shadow, users = (served.counted(REQUESTS, outcome=outcome) for outcome in ("shadow", "answered"))
    return shadow - before[0], users - before[1]


def test_only_the_shadows_token_takes_a_request_out_of_the_counts(shadowed: Served) -> None:
    assert ask(shadowed, TOKEN) == (1, 0)
    for header in NOT_THE_TOKEN:
        assert ask(shadowed, header) == (0, 1), header


def test_without_a_token_no_request_is_the_shadows(served: Served) -> None:
    for header in ("", "1", TOKEN):
        assert ask(served, header) == (0, 1), header


@pytest.mark.parametrize("token", ["short", "a" * 31, "ä" * 40, f"{'a' * 40}\n"])
def test_a_token_that_could_be_guessed_or_is_no_header_ends_the_program(token: str) -> None:
    with pytest.raises(ConfigError, match="openssl rand -hex 32"):
        read_shadow_token({VARIABLE: token})
    assert read_shadow_token({}) == ""
    assert read_shadow_token({VARIABLE: TOKEN}) == TOKEN
