"""The gateway as a process: killed, stopped, refused, and looked through for the key."""

import asyncio
import contextlib
import random
import sqlite3
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from qinglan.errors import OutageError, QinglanError
from qinglan.llm.call_plan import PaidRequest
from qinglan.llm.client import Answer, GatewayClient
from qinglan.llm.config import GatewayConfig
from qinglan.llm.paid.journal import Entry, Journal
from qinglan.llm.paid.journal_reader import read_report
from serving.gateway.paid_calls import GatewayStopping
from serving.gateway.server import open_gateway
from standins.teacher.app import create_app, prompt_digest
from standins.teacher.config import Behaviour
from tests.servers.echo_servers import EchoBrain, GatewayProcess, Reply, Scripted, gateway, gateway_config, running

KEY = "sk-planted-0123456789abcdef"


def messages(row: str) -> list[Any]:
    return [{"role": "user", "content": f"问题 {row}"}]


async def ask_all(url: str, rows: list[str]) -> list[str]:
    """A stage in small: an answer a row, or the error that stopped it."""
    async with GatewayClient(url, "generate", back_within=0.2) as client:
        asks = (client.ask("teacher", messages(row), row=row) for row in rows)
        answers = await asyncio.gather(*asks, return_exceptions=True)  # all end: a cancelled one leaks its socket
        if failures := [answer for answer in answers if isinstance(answer, BaseException)]:
            raise failures[0]
        await client.exported("artifact")
        return [answer.text for answer in answers if isinstance(answer, Answer)]


async def ask_until_killed(gateway: GatewayProcess, url: str, rows: list[str], seconds: float) -> None:
    requested = asyncio.create_task(ask_all(url, rows))
    await asyncio.wait((requested,), timeout=seconds)
    gateway.kill()
    with contextlib.suppress(QinglanError):
        await requested


@pytest.mark.slow
def test_after_any_kill_nothing_is_lost_and_only_what_is_missing_is_asked_again(tmp_path: Path) -> None:
    rows, luck = [str(number) for number in range(60)], random.Random(7)
    with running(create_app(EchoBrain(), Behaviour(latency=0.03, jitter=0.03))) as teacher:
        config = gateway_config(teacher)
        for _ in range(4):
            gateway = GatewayProcess(config, tmp_path)
            asyncio.run(ask_until_killed(gateway, gateway.url(), rows, luck.uniform(0.02, 0.3)))
        gateway = GatewayProcess(config, tmp_path)
        texts = asyncio.run(ask_all(gateway.url(), rows))
        assert gateway.stop() == 0
        billed = httpx.get(f"{teacher}/stats", trust_env=False).json()["billed_by_prompt"]

    assert texts == [f"回声 问题 {row}" for row in rows]
    report = read_report(tmp_path / "journal.sqlite")
    twice = {f"generate/{row}" for row in rows if billed[prompt_digest("echo", messages(row))] > 1}
    assert twice <= set(report["possibly_billed"])
    assert report["answered"] == len(rows)
    # Each kill can lose no more than what was under way.
    assert report["attempts"] <= len(rows) + 4 * config.limits.concurrency
    assert report["exports"] == [{"step": "generate", "artifact": "artifact", "answers": len(rows)}]


@pytest.mark.slow
def test_a_stage_lives_through_a_restart_of_the_gateway(tmp_path: Path) -> None:
    async def run(config: GatewayConfig) -> list[str]:
        first = GatewayProcess(config, tmp_path)
        url = first.url()
        port = int(url.rsplit(":", 1)[1])
        async with GatewayClient(url, "generate") as client:
            asks = [asyncio.create_task(client.ask("teacher", messages(str(n)), row=str(n))) for n in range(40)]
            await asyncio.wait(asks, return_when=asyncio.FIRST_COMPLETED)
            first.kill()
            second = GatewayProcess(config, tmp_path, port=port)
            assert second.url() == url
            texts = [(await ask).text for ask in asks]
        second.stop()
        return texts

    with running(create_app(EchoBrain(), Behaviour(latency=0.05))) as teacher:
        assert asyncio.run(run(gateway_config(teacher))) == [f"回声 问题 {n}" for n in range(40)]


@pytest.mark.slow
def test_sigterm_awaits_what_was_sent_journals_it_and_sends_nothing_more(tmp_path: Path) -> None:
    async def run(gateway: GatewayProcess, teacher: str) -> None:
        url, rows = gateway.url(), [str(number) for number in range(30)]
        requested = asyncio.create_task(ask_all(url, rows))
        async with httpx.AsyncClient(trust_env=False) as http:
            while not (await http.get(f"{teacher}/stats")).json()["asked"]:
                pass
        assert await asyncio.to_thread(gateway.stop) == 0
        with pytest.raises(OutageError):
            await requested

    with running(create_app(EchoBrain(), Behaviour(latency=0.5))) as teacher:
        gateway = GatewayProcess(gateway_config(teacher, limits={"concurrency": 5}), tmp_path)
        asyncio.run(run(gateway, teacher))
        requested = httpx.get(f"{teacher}/stats", trust_env=False).json()["asked"]
    report = read_report(tmp_path / "journal.sqlite")
    assert 0 < requested == report["answered"] == report["attempts"] < 30
    assert report["possibly_billed"] == []


@pytest.mark.slow
def test_a_second_gateway_on_the_same_journal_is_refused_and_a_killed_ones_place_is_free(tmp_path: Path) -> None:
    config = gateway_config("http://127.0.0.1:9")
    first = GatewayProcess(config, tmp_path)
    first.url()
    second = GatewayProcess(config, tmp_path)
    assert second.process.wait(timeout=120) == 2
    assert "another gateway owns this journal" in second.log.read_text()
    second.stop()
    first.kill()
    third = GatewayProcess(config, tmp_path)
    assert third.url().startswith("http://127.0.0.1:")
    third.stop()


@pytest.mark.slow
def test_a_host_that_the_operator_does_not_allow_stops_the_gateway_before_it_listens(tmp_path: Path) -> None:
    gateway = GatewayProcess(gateway_config("https://api.example.com"), tmp_path, {"QINGLAN_API_KEY": KEY})
    assert gateway.process.wait(timeout=120) == 2
    gateway.stop()
    assert "teacher.base_url: host 'api.example.com' is not allowed" in gateway.log.read_text()
    assert not (tmp_path / "journal.sqlite").exists()


@pytest.mark.slow
def test_the_key_is_in_no_file_log_or_error(tmp_path: Path) -> None:
    denied = Reply(401, orjson.dumps({"error": {"message": f"Incorrect API key: {KEY}", "code": "invalid_api_key"}}))
    garbage = Reply(500, f"<html>Authorization: Bearer {KEY}</html>".encode())
    app = Scripted(garbage, denied)
    with running(app) as teacher:
        gateway = GatewayProcess(gateway_config(teacher), tmp_path, {"QINGLAN_API_KEY": KEY})
        url = gateway.url()
        with pytest.raises(OutageError) as caught:
            asyncio.run(ask_all(url, ["1"]))
        metrics = httpx.get(f"{url}/metrics", trust_env=False).text
        gateway.stop()
    assert app.requests[0][2]["authorization"] == f"Bearer {KEY}"
    assert KEY not in str(caught.value) + metrics
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.name for path in files} >= {"journal.sqlite", "gateway.log", "gateway.json"}
    assert [path.name for path in files if KEY.encode() in path.read_bytes()] == []


def test_a_gateway_whose_journal_cannot_be_written_says_that_it_is_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    async def run(teacher: str) -> list[tuple[int, str]]:
        async with gateway(gateway_config(teacher), tmp_path) as url, httpx.AsyncClient(trust_env=False) as http:
            ready = await http.get(f"{url}/readyz")
            monkeypatch.setattr("qinglan.llm.paid.group_commit.GroupWriter._commit", full)
            with pytest.raises(OutageError, match="disk is full"):
                await ask_all(url, ["1"])
            later = [await http.get(f"{url}{path}") for path in ("/readyz", "/healthz")]
            return [(answer.status_code, answer.text) for answer in (ready, *later)]

    with running(create_app(EchoBrain(), Behaviour())) as teacher:
        answers = asyncio.run(run(teacher))
        assert httpx.get(f"{teacher}/stats", trust_env=False).json()["billed"] == 0
    assert [status for status, _ in answers] == [200, 503, 503]
    assert "Mend the disk" in answers[1][1]


def test_a_call_that_is_stopped_while_it_is_being_journaled_does_not_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run(teacher: str) -> BaseException | Any:
        async with open_gateway(gateway_config(teacher), tmp_path / "journal.sqlite", tmp_path / "r.sqlite") as (
            _,
            paid,
        ):
            sent = Journal.sent

            async def then_stopped(journal: Journal, *inputs: Any) -> int:
                number = await sent(journal, *inputs)
                paid.stop()
                return number

            monkeypatch.setattr(Journal, "sent", then_stopped)
            request = PaidRequest(Entry("ppo", "1", "teacher"), [{"role": "user", "content": "问题 1"}])
            [ended] = await asyncio.gather(paid.answer(request), return_exceptions=True)
            return ended

    with running(create_app(EchoBrain(), Behaviour())) as teacher:
        assert isinstance(asyncio.run(run(teacher)), GatewayStopping)
        assert httpx.get(f"{teacher}/stats", trust_env=False).json()["asked"] == 0
    report = read_report(tmp_path / "journal.sqlite")
    assert (report["cost"], report["possibly_billed"]) == (0, [])
