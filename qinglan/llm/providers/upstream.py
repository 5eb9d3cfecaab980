"""Calls a paid model once, and returns the received answer or raises an error. Callers decide about retries.

UpstreamError
├── RateLimitError          429: all calls pause, then this one is sent again
├── TransientError          5xx, no answer in time, an unreadable body: sent again, then the row fails
│   └── UnreachableError    no connection: sent again, then the run stops, since the row is not at fault
├── RejectedRequestError    400: this row's request will never be accepted
└── FatalUpstreamError      a key, quota, address or model that fails for every row
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import httpx2
import openai
import orjson

from qinglan.http.http_client import async_client, certificate_advice, retry_after
from qinglan.llm.config import PaidModel
from qinglan.llm.host_allowlist import check_host
from qinglan.llm.provider_quirks import INTERRUPTED_FINISH_REASONS
from qinglan.llm.providers.prices import Usage, read_usage
from qinglan.llm.providers.redaction import key_remover
from qinglan.text.text import as_sentence

MAX_RAW_CHARACTERS = 2000
MAX_MESSAGE_CHARACTERS = 300
MAX_QUOTED_CHARACTERS = 80
RETRYABLE_STATUSES = {408, 409, 425}
NOT_FOUND = "not found"
"""Reason of a FatalUpstreamError: the service knows no such path, model, batch or file."""

CUT_OFF_STATUSES = {502, 504, 520, 524}
"""Statuses of a proxy that forwarded the request and got no answer, or a broken one; 520 and 524 are Cloudflare's
(developers.cloudflare.com/support/troubleshooting/http-status-codes). The service may have answered, and billed the
call."""

REJECTED_STATUSES = {400, 413, 422}
FILTER_CODES, FILTER_MESSAGE = {"content_filter", "content_policy_violation"}, "Content Exists Risk"
"""Signs of a content filter in a 400: codes of OpenAI and Azure, and DeepSeek's message."""

Result = TypeVar("Result")


class Completion(NamedTuple):
    """A received completion that contains a message. The caller decides if the message is usable."""

    raw: bytes
    usage: Usage | None


class UpstreamError(Exception):
    """A call got no answer. `maybe_billed` is True if the service may have charged for it, and `raw` is the text that
    came instead of an answer."""

    def __init__(self, reason: str, message: str, raw: str = "", maybe_billed: bool = False) -> None:
        super().__init__(message)
        self.reason = reason
        self.raw = raw
        self.maybe_billed = maybe_billed


class RateLimitError(UpstreamError):
    def __init__(self, message: str, raw: str, wait: float | None) -> None:
        super().__init__("rate limit", message, raw)
        self.wait = wait


class TransientError(UpstreamError):
    pass


class UnreachableError(TransientError):
    """The request never reached the service."""


class RejectedRequestError(UpstreamError):
    pass


class FatalUpstreamError(UpstreamError):
    pass


class Upstream:
    """Client of one model. It follows no redirects, uses no proxy, and never shows its key."""

    def __init__(self, model: PaidModel, role: str, timeout: float) -> None:
        check_host(model.base_url, f"{role}.base_url")
        self.model = model
        self._timeout = timeout
        self._key = model.read_key(role)
        self._remove_key = key_remover(self._key)
        self.where = f"{role} {model.model} at {model.base_url}"
        self._client = openai.AsyncOpenAI(
            base_url=model.base_url,
            api_key=self._key,
            max_retries=0,
            timeout=timeout,
            http_client=async_client(timeout=timeout),
        )

    async def aclose(self) -> None:
        await self._client.close()

    async def complete(self, request: dict[str, Any]) -> Completion:
        answer = await self.call(
            lambda client: client.post("/chat/completions", cast_to=httpx2.Response, body=request), self._timeout
        )
        return read_completion(self.clean(answer.text), self.where)

    async def call(self, send: Callable[[openai.AsyncOpenAI], Awaitable[Result]], seconds: float) -> Result:
        """Await `send(client)` with a time limit. An UpstreamError tells what came instead of an answer."""
        client = self._client if seconds == self._timeout else self._client.with_options(timeout=seconds)
        try:
            return await send(client)
        except openai.APIStatusError as error:
            body = self.clean(error.response.text)
            raise error_from_status(error.status_code, error.response.headers, body, self.where) from error
        except (openai.APIConnectionError, httpx2.TransportError) as error:
            cause = error if isinstance(error, httpx2.TransportError) else error.__cause__ or error
            never_sent = isinstance(cause, httpx2.ConnectError | httpx2.ConnectTimeout)
            timed_out = isinstance(cause, httpx2.TimeoutException)
            problem = f"no answer in {seconds:g} s" if timed_out else self.clean(f"{type(cause).__name__}: {cause}")
            kind = UnreachableError if never_sent else TransientError
            raise kind(
                "timeout" if timed_out else "connection",
                f"{self.where}: {problem}.{certificate_advice(cause)}",
                maybe_billed=not never_sent,
            ) from error

    def clean(self, text: str) -> str:
        """Remove the key from a text. Otherwise a service that repeats the key could bring it into our files."""
        return self._remove_key(text)


def read_completion(body: str, where: str) -> Completion:
    """Read a completion from a body of status 200. Any other body is a TransientError, which may have been billed."""
    try:
        completion = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise TransientError(
            "unreadable",
            f"{where}: the answer is not JSON; it begins {body[:MAX_QUOTED_CHARACTERS]!r}.",
            body[:MAX_RAW_CHARACTERS],
            True,
        ) from error
    choices = completion.get("choices") if isinstance(completion, dict) else None
    first = choices[0] if isinstance(choices, list) and choices else None
    if not isinstance(first, dict) or not isinstance(first.get("message"), dict):
        raise TransientError("no choices", f"{where}: the answer holds no message.", body[:MAX_RAW_CHARACTERS], True)
    if (end := first.get("finish_reason")) in INTERRUPTED_FINISH_REASONS:
        raise TransientError(
            "interrupted", f"{where}: the service broke off ({end}).", body[:MAX_RAW_CHARACTERS], True
        )
    return Completion(body.encode(), read_usage(completion))


def error_from_status(status: int, headers: Mapping[str, str], body: str, where: str) -> UpstreamError:
    """Return the error for a status. Its class says if it concerns only this row, is temporary, or concerns every
    row."""
    code, message = _error_of(body)
    text = as_sentence(f"{where}: status {status}: {message}" if message.strip() else f"{where}: status {status}")
    raw = body[:MAX_RAW_CHARACTERS]
    if code == "insufficient_quota" or status == 402:
        return FatalUpstreamError("quota", f"{text} The account has no credit left: top it up, then run again.", raw)
    if status == 429:
        return RateLimitError(text, raw, retry_after(headers))
    if status in (401, 403):
        return FatalUpstreamError("key", f"{text} The key is not accepted: set another, then run again.", raw)
    if status in REJECTED_STATUSES:
        return RejectedRequestError(
            "refused" if code in FILTER_CODES or message.startswith(FILTER_MESSAGE) else "rejected", text, raw
        )
    if status >= 500 or status in RETRYABLE_STATUSES:
        return TransientError(f"status {status}", text, raw, maybe_billed=status in CUT_OFF_STATUSES)
    return FatalUpstreamError(
        NOT_FOUND if status in (404, 405) else "address",
        f"{text} See that base_url and model are right; redirects are not followed.",
        raw,
    )


def _error_of(body: str) -> tuple[str, str]:
    try:
        error = orjson.loads(body)
    except orjson.JSONDecodeError:
        return "", repr(body[:MAX_MESSAGE_CHARACTERS])
    inside = error.get("error", error) if isinstance(error, dict) else error
    if not isinstance(inside, dict):
        return "", str(inside)[:MAX_MESSAGE_CHARACTERS]
    code = inside.get("code") or inside.get("type")
    return str(code), str(inside.get("message", ""))[:MAX_MESSAGE_CHARACTERS]
