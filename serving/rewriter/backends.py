"""Backends that write rewrites with greedy decoding: the model in this process, or a separate vLLM server."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence

import httpx2
import orjson

from qinglan.concurrency import gather_or_cancel
from qinglan.errors import OutageError
from qinglan.http.http_client import async_client
from qinglan.rewriter.engine import (
    COMPLETIONS_PATH,
    HEALTH_PATH,
    MAX_CONCURRENCY,
    MODELS_PATH,
    completion_request,
    context_tokens,
    read_completion,
)
from qinglan.rewriter.model import GeneratedRewrite, Student, StudentPrompt
from serving.dynamic_batcher import DynamicBatcher

MAX_BATCH = 32
"""Highest number of questions in one batch of the model in this process."""

KEEP_ALIVE_SECONDS = 2.0
"""Seconds after which an idle connection is not reused. vLLM closes it after 5 s (uvicorn's timeout_keep_alive),
and a request that is sent just then is lost."""

HEALTH_SECONDS = 2.0


class Backend(ABC):
    """Base class of backends. The defaults (always ready, no limit of its own) fit a model in this process."""

    @property
    @abstractmethod
    def waiting(self) -> int:
        """Number of questions that wait for the backend."""

    @abstractmethod
    async def write(self, prompts: Sequence[StudentPrompt]) -> list[GeneratedRewrite]:
        """Write one rewrite for each prompt. Raises an OutageError if the backend fails."""

    async def is_ready(self) -> bool:
        """True if the backend would answer now."""
        return True

    async def context_tokens(self) -> int | None:
        """Backend's limit for prompt and rewrite together, in tokens; None if only the model's limit applies."""
        return None

    async def aclose(self) -> None:
        return None


class TransformersBackend(Backend):
    """Backend with transformers in this process, on a GPU if there is one. It answers waiting prompts in batches."""

    def __init__(self, student: Student) -> None:
        self._batches = DynamicBatcher[StudentPrompt, GeneratedRewrite](student.write_prompts, MAX_BATCH)

    @property
    def waiting(self) -> int:
        return self._batches.waiting

    async def write(self, prompts: Sequence[StudentPrompt]) -> list[GeneratedRewrite]:
        return await self._batches.ask(prompts)


class VllmBackend(Backend):
    """Backend with a vLLM server, which gets the rendered prompt at /v1/completions.

    It does not use /v1/chat/completions, because vLLM would render the messages itself, and the prompt would depend
    on vLLM's options.
    """

    def __init__(self, url: str, model: str, max_new_tokens: int) -> None:
        self._model, self._max_new_tokens = model, max_new_tokens
        limits = httpx2.Limits(max_connections=MAX_CONCURRENCY + 2, keepalive_expiry=KEEP_ALIVE_SECONDS)
        # The client needs no timeout, because the server's middleware gives each request a deadline.
        self._http = async_client(url, timeout=None, limits=limits)
        self._turns = asyncio.Semaphore(MAX_CONCURRENCY)
        self._url, self._waiting = url, 0

    @property
    def waiting(self) -> int:
        return self._waiting

    async def write(self, prompts: Sequence[StudentPrompt]) -> list[GeneratedRewrite]:
        return await gather_or_cancel(*(self._in_turn(prompt) for prompt in prompts))

    async def is_ready(self) -> bool:
        try:
            return (await self._http.get(HEALTH_PATH, timeout=HEALTH_SECONDS)).status_code == 200
        except httpx2.HTTPError:
            return False

    async def context_tokens(self) -> int | None:
        try:
            return context_tokens((await self._http.get(MODELS_PATH, timeout=HEALTH_SECONDS)).content)
        except httpx2.HTTPError:
            return None

    async def aclose(self) -> None:
        await self._http.aclose()

    async def _in_turn(self, prompt: StudentPrompt) -> GeneratedRewrite:
        self._waiting += 1
        try:
            await self._turns.acquire()
        finally:
            self._waiting -= 1
        try:
            return read_completion(await self._post(prompt.text), self._url)
        finally:
            self._turns.release()

    async def _post(self, text: str) -> bytes:
        body = orjson.dumps(completion_request(self._model, text, self._max_new_tokens))
        try:
            try:
                response = await self._send(body)
            except (httpx2.ReadError, httpx2.WriteError, httpx2.RemoteProtocolError):
                # The connection broke, perhaps because vLLM closed it as idle. Greedy decoding gives the same answer
                # again.
                response = await self._send(body)
        except httpx2.HTTPError as error:
            raise OutageError(f"The backend at {self._url} does not answer ({type(error).__name__}).") from error
        if response.status_code != 200:
            raise OutageError(f"The backend at {self._url} refused with {response.status_code}. See its log.")
        return response.content

    async def _send(self, body: bytes) -> httpx2.Response:
        return await self._http.post(COMPLETIONS_PATH, content=body, headers={"content-type": "application/json"})
