"""A provider that limits, fails or hangs is named with its reason: to who waits, in the log, and at the end."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import httpx
import pytest

from qinglan.errors import OutageError
from qinglan.llm.client import GatewayClient
from qinglan.llm.contract import WAITS_PATH
from qinglan.llm.providers.upstream import (
    RateLimitError,
    RejectedRequestError,
    TransientError,
    UpstreamError,
)
from serving.gateway.service_status import ServiceStatus
from tests.servers.echo_servers import Reply, Scripted, gateway, gateway_config, running

LIMITED = RateLimitError("teacher t: status 429: slow down.", "", 8.0)
SILENT = TransientError("timeout", "teacher t: no answer in 60 s.", "", True)


@pytest.mark.parametrize(
    ("failures", "pause", "reason"),
    [
        ([LIMITED], 8.4, "status 429 (rate limit); asked again in 8 s"),
        ([SILENT, LIMITED], 1.0, "status 429 (rate limit); asked again in 1 s"),
        ([LIMITED, SILENT], 1.0, "no answer in time; asked again"),
        ([TransientError("status 503", "x")], 0.0, "status 503; asked again"),
        ([RejectedRequestError("refused", "x")], 0.0, ""),
        ([], 0.0, ""),
    ],
)
def test_the_reason_why_calls_wait(failures: list[UpstreamError], pause: float, reason: str) -> None:
    status = ServiceStatus()
    for failure in failures:
        status.failed(failure)
    assert status.hold_up(pause) == reason

    status.answered("teacher t")
    with status.request(), status.request():
        assert status.hold_up(0.0) == "the service has 2 requests and has not answered yet"
    assert status.hold_up(0.0) == ""


def test_the_log_has_a_line_for_each_change_and_none_for_each_request(caplog: pytest.LogCaptureFixture) -> None:
    status = ServiceStatus()
    for failure in [LIMITED] * 50 + [SILENT] * 9:
        status.failed(failure)
    status.answered("teacher t")
    for _ in range(100):  # a limit under which answers and refusals alternate
        status.failed(LIMITED)
        status.answered("teacher t")

    assert [record.getMessage() for record in caplog.records] == [
        "teacher t: status 429: slow down. (Retry-After: 8 s)",
        "teacher t: no answer in 60 s.",
        "teacher t answers again after 0 s.",
    ]


def ask_all(url: str, folder: Path, after: float, **limits: Any) -> tuple[list[Any], str]:
    """Ten answers or errors of a gateway before this service, and the reason that it tells after some seconds."""

    async def run() -> tuple[list[Any], str]:
        async with (
            gateway(gateway_config(url, limits=limits), folder) as at,
            GatewayClient(at, "generate") as client,
            httpx.AsyncClient(trust_env=False) as http,
        ):
            message: Any = [{"role": "user", "content": "q"}]
            asks = [asyncio.create_task(client.ask("teacher", [*message, *message * n], str(n))) for n in range(10)]
            await asyncio.sleep(after)
            reason = (await http.get(at + WAITS_PATH)).json()["reason"]
            return await asyncio.gather(*asks, return_exceptions=True), reason

    return asyncio.run(run())


def test_a_service_that_only_limits_ends_the_run_with_what_it_really_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    refusal = Reply(429, b'{"error": {"message": "Rate limit"}}', {"retry-after": "1"})
    with running(service := Scripted(refusal)) as url, caplog.at_level(logging.WARNING):
        answers, reason = ask_all(url, tmp_path, 0.7, longest_wait_seconds=3.0)

    assert reason.startswith("status 429 (rate limit); asked again in ")
    assert len(service.requests) <= 10 + 3, "one request for each second that it asked for"
    assert {type(answer) for answer in answers} == {OutageError}
    assert "status 429: Rate limit" in str(answers[0])
    assert "requests of the last 2 s, and its last Retry-After was 1 s" in str(answers[0])
    lines = [record.getMessage() for record in caplog.records if "serving.gateway" in record.name]
    assert len(lines) == 1
    assert "(Retry-After: 1 s)" in lines[0]
