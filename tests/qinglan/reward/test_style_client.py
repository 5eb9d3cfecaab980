"""The style term: a probability, or an error; never a guess."""

import asyncio

import orjson
import pytest

from qinglan.errors import ConfigError, OutageError, RowError
from qinglan.reward.config import StyleRewardConfig
from qinglan.reward.style_client import StyleClient, read_style_probability
from tests.servers.echo_servers import Reply, Scripted, running

ANSWER = orjson.dumps(
    {"predicted_label": "诚实", "confidence": 0.6, "probabilities": {"诚实": 0.6, "有用": 0.3, "销售": 0.1}}
)
JSON = {"content-type": "application/json"}


def request(service: Scripted, *labels: str) -> float:
    async def ask(url: str) -> float:
        client = StyleClient(StyleRewardConfig(url=url, weight=0.1, wanted=labels))
        try:
            return await client.probability("一天吃几次", "虾青素软胶囊")
        finally:
            await client.aclose()

    with running(service) as url:
        return asyncio.run(ask(url))


def test_the_wanted_labels_probabilities_are_added_up() -> None:
    assert request(Scripted(Reply(200, ANSWER, JSON)), "诚实", "有用") == pytest.approx(0.9)


def test_a_service_that_is_busy_once_is_asked_again() -> None:
    assert request(Scripted(Reply(503, b"", JSON), Reply(200, ANSWER, JSON)), "诚实") == pytest.approx(0.6)


def test_a_service_that_stays_away_is_an_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qinglan.reward.style_client.ATTEMPTS", 2)

    with pytest.raises(OutageError, match="Tried 2 times"):
        request(Scripted(Reply(503, b"", JSON)), "诚实")


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_text_that_it_refuses_while_it_takes_a_short_one_concerns_its_row(status: int) -> None:
    with pytest.raises(RowError, match=f"refused this text with status {status}"):
        request(Scripted(Reply(status, b"", JSON), Reply(200, ANSWER, JSON)), "诚实")


@pytest.mark.parametrize("status", [301, 400, 401, 403, 404, 405, 413, 422])
def test_a_service_that_refuses_every_text_is_a_setting_to_mend(status: int) -> None:
    with pytest.raises(ConfigError, match=rf"status {status}\. Check reward\.style\.url"):
        request(Scripted(Reply(status, b"", JSON)), "诚实")


def test_a_label_that_it_does_not_know_is_a_setting_to_mend() -> None:
    with pytest.raises(ConfigError, match="no label '友善'"):
        request(Scripted(Reply(200, ANSWER, JSON)), "友善")


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b'{"probabilities": 1}', b'{"probabilities": {"a": "x"}}', b'{"probabilities": {"a": 1.5}}'],
)
def test_an_answer_that_is_not_the_contract_is_an_outage(content: bytes) -> None:
    with pytest.raises(OutageError, match="not the contract"):
        read_style_probability(content, ("a",), "here")
