"""Loop of the shadow: read new questions, request the canary's rewrites, compare, count. No user waits for it."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from qinglan.concurrency import gather_or_cancel
from qinglan.errors import QinglanError
from serving.rollout.shadow.canary_client import CanaryClient
from serving.rollout.shadow.comparer import Comparer
from serving.rollout.shadow.config import ModelPair, ShadowConfig
from serving.rollout.shadow.metrics import FailureReason, Metrics, PairFailure, PairOutcome
from serving.rollout.shadow.pair_source import RolloutPairSource
from serving.rollout.shadow.payload_log import LoggedQuestion, PayloadLogReader, sampled

POLL_SECONDS = 10.0
"""Seconds between two polls; the log is written every five seconds."""

MAX_QUESTIONS_PER_POLL = 200
"""Highest number of questions in one poll; further questions are skipped and counted as `too_many`."""

AT_ONCE = 4
"""Questions under way at the same time; few, because the canary may have few pods and its users go first."""

Read = TypeVar("Read")

log = logging.getLogger("serving.rollout.shadow")


class ShadowWorker:
    def __init__(
        self,
        config: ShadowConfig,
        reader: PayloadLogReader,
        pair_source: RolloutPairSource,
        comparer: Comparer,
        metrics: Metrics,
    ) -> None:
        self._config, self._reader, self._pair_source = config, reader, pair_source
        self._comparer, self._metrics = comparer, metrics
        self._canary = CanaryClient(config.model, config.ingress, config.deadline_seconds)
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def aclose(self) -> None:
        await self._canary.aclose()
        await self._comparer.aclose()

    async def run_forever(self) -> None:
        """Poll for ever. A failed poll is counted and does not end the loop."""
        while True:
            with self.count_failures():
                await self.poll()
            await asyncio.sleep(POLL_SECONDS)

    async def poll(self) -> None:
        """Compare the new questions. Questions that are logged while there is no canary are skipped."""
        pair = await asyncio.to_thread(self._pair_source.current_pair)
        if pair is None:
            self._reader.forget()
            return
        self._metrics.begin(pair.canary, pair.stable)
        keys = await _read_log(self._reader.new_keys)
        left = MAX_QUESTIONS_PER_POLL
        for key in keys:
            with self.count_failures():
                chosen = self._sample_questions(await _read_log(partial(self._reader.lines, key)), pair, left)
                left -= len(chosen)
                await gather_or_cancel(*(self._compare_rewrites(question, pair) for question in chosen))

    def _sample_questions(
        self, lines: Iterable[LoggedQuestion | None], pair: ModelPair, limit: int
    ) -> list[LoggedQuestion]:
        """Choose a sample of the stable model's answers with texts. The canary's answers to users are left out."""
        readable = [line for line in lines if line is not None]
        unreadable = sum(line is None for line in lines)
        stable = [line for line in readable if (line.version, line.outcome) == (pair.stable, "answered")]
        sampled_lines = [line for line in stable if sampled(line.request_id, self._config.share)]
        with_text = [line for line in sampled_lines if line.question and line.rewrite]
        reasons: dict[FailureReason, int] = {
            "unreadable": unreadable,
            "no_text": len(sampled_lines) - len(with_text),
            "too_many": len(with_text) - limit,
        }
        for reason, count in reasons.items():
            if count > 0:
                self._metrics.failed(reason, count)
        return with_text[:limit]

    async def _compare_rewrites(self, question: LoggedQuestion, pair: ModelPair) -> None:
        """Compare both rewrites of a question, and count it as one pair or as one failure."""
        async with self._slots:
            with self.count_failures():
                rewrite = await self._canary.rewrite(question, pair)
                outcome: PairOutcome = "tied"
                if rewrite != question.rewrite:
                    outcome = await self._comparer.compare(question, rewrite, question.rewrite)
                self._metrics.pair(pair.canary, pair.stable, outcome)

    @contextmanager
    def count_failures(self) -> Iterator[None]:
        """Count an error in the block and log its reason, without any text of the question."""
        try:
            yield
        except PairFailure as failure:
            self._metrics.failed(failure.reason)
            log.warning("%s: %s", failure.reason, failure)
        except Exception as error:  # a hostile line in the log must not stop the questions after it
            self._metrics.failed("unexpected")
            log.error("unexpected: %s", type(error).__name__)


async def _read_log(read: Callable[[], Read]) -> Read:
    """Read from the payload log in a thread, because a store may be slow."""
    try:
        return await asyncio.to_thread(read)
    except (QinglanError, OSError) as error:
        raise PairFailure("payload_log", str(error)) from error
