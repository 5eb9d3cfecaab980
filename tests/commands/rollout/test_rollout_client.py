"""An API server that is busy for a moment: the command waits, and says so only when it stays busy."""

import orjson
import pytest
from kubernetes import client

from commands.rollout import rollout_client
from commands.rollout.rollout_client import RolloutClient
from qinglan.errors import OutageError
from qinglan.kubernetes.client import Api
from tests.servers.echo_servers import Reply, Scripted, running

BUSY = Reply(429, orjson.dumps({"message": "storage is (re)initializing"}), {"retry-after": "1"})


def rollouts(host: str) -> RolloutClient:
    settings = client.Configuration(host=host)
    settings.retries = False
    return RolloutClient("team", Api(client.ApiClient(settings), "team"))


def test_a_server_that_is_busy_for_a_moment_is_asked_again() -> None:
    with running(service := Scripted(BUSY, BUSY, Reply(200, b'{"items": []}'))) as host:
        assert rollouts(host).all() == []
    assert len(service.requests) == 3


def test_a_server_that_stays_busy_is_an_outage_in_its_own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollout_client, "BUSY_PAUSES", (0.1,))
    with running(Scripted(BUSY)) as host, pytest.raises(OutageError, match=r"initializing.*Check that it runs"):
        rollouts(host).all()


def test_a_refused_change_is_not_sent_again() -> None:
    with running(service := Scripted(Reply(500, b"{}"))) as host, pytest.raises(OutageError):
        rollouts(host).change("rewriter-1", {"paused": True})
    assert len(service.requests) == 1
