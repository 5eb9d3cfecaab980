"""Ask the style service for a term of the reward: POST /predict {"text"} -> {"probabilities": {label: p}}."""

import httpx2

from qinglan.errors import ConfigError, OutageError, RowError
from qinglan.http.http_client import BusyError, async_client, certificate_advice, pause_before_retry, retry_after
from qinglan.http.outages import Retries, outage_seconds
from qinglan.llm.host_allowlist import check_host
from qinglan.reward.config import StyleRewardConfig
from qinglan.style.labels import format_training_text
from qinglan.style.service_responses import read_style_response

ATTEMPTS = 4
SECONDS = 30.0
AT_ONCE = 20
BUSY = {429, 500, 502, 503, 504}


REFUSED_TEXT = {400, 413, 422}
"""HTTP statuses with which the service may refuse a single text, for example one that is too long for the model."""

SHORT_TEXT = format_training_text("一天吃几次", "")


class StyleClient:
    """Client of the style service, with retries. A missing answer raises an OutageError; it never becomes a 0."""

    def __init__(self, config: StyleRewardConfig) -> None:
        check_host(config.url, "reward.style.url")
        self._config = config
        limits = httpx2.Limits(max_connections=AT_ONCE)
        self._http = async_client(config.url, timeout=SECONDS, limits=limits)
        self._retries = Retries(self._where, pause_before_retry, ATTEMPTS, outage_seconds())

    async def aclose(self) -> None:
        await self._http.aclose()

    async def probability(self, question: str, rewrite: str) -> float:
        """Return the probability that a rewrite is in the configured style; the text has the form of training texts.

        Raises a RowError if the service refuses this text but accepts a short text.
        """
        response = await self._send(format_training_text(question, rewrite))
        if response.status_code in REFUSED_TEXT and (await self._send(SHORT_TEXT)).status_code == 200:
            raise RowError("refused", f"{self._where}: refused this text with status {response.status_code}.")
        if response.status_code != 200:
            raise ConfigError(f"{self._where}: refused with status {response.status_code}. Check reward.style.url.")
        return read_style_probability(response.content, self._config.wanted, self._where)

    @property
    def _where(self) -> str:
        return f"Style service {self._config.url.rstrip('/')}/predict"

    async def _send(self, text: str) -> httpx2.Response:
        async def send() -> httpx2.Response:
            response = await self._http.post("/predict", json={"text": text})
            if response.status_code in BUSY:
                raise BusyError(f"status {response.status_code}", retry_after(response.headers))
            return response

        try:
            return await self._retries.run(send)
        except (BusyError, httpx2.TransportError) as error:
            raise OutageError(
                f"{self._where}: no answer ({error or type(error).__name__}). {self._retries.limit()}; "
                f"see that the service is up, then run again.{certificate_advice(error)}"
            ) from error


def read_style_probability(content: bytes, labels: tuple[str, ...], where: str) -> float:
    """Return the sum of the labels' probabilities; raises a ConfigError for a label that the service lacks."""
    try:
        probabilities = read_style_response(content).probabilities
    except ValueError as error:
        raise OutageError(f"{where}: the answer is not the contract: {content[:200]!r}") from error
    if unknown := set(labels) - probabilities.keys():
        raise ConfigError(
            f"{where}: no label {min(unknown)!r}. There are: {', '.join(probabilities)}. Mend reward.style."
        )
    return min(1.0, sum(probabilities[label] for label in set(labels)))
