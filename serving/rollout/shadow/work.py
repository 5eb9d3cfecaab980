"""The shadow's work: look what was written, ask the canary, compare, count. Nobody waits for any of it."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from qinglan.errors import QinglanError
from serving.rollout.shadow.canary import Canary
from serving.rollout.shadow.comparing import Comparer
from serving.rollout.shadow.config import Pair, ShadowConfig
from serving.rollout.shadow.metrics import Failure, Metrics, Outcome, Reason
from serving.rollout.shadow.pairing import Pairing
from serving.rollout.shadow.questions import Asked, PayloadReader, sampled

LOOK_SECONDS = 10.0
"""Between two looks; the log is written every five."""

MOST_A_LOOK = 200
"""Questions; what is more is left out, and counted."""

AT_ONCE = 4
"""The canary may have few pods, and users go first."""

Read = TypeVar("Read")

log = logging.getLogger("serving.rollout.shadow")


class Shadow:
    def __init__(
        self, config: ShadowConfig, reader: PayloadReader, pairing: Pairing, comparer: Comparer, metrics: Metrics
    ) -> None:
        self._config, self._reader, self._pairing = config, reader, pairing
        self._comparer, self._metrics = comparer, metrics
        self._canary = Canary(config.model, config.ingress, config.deadline_seconds)
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def aclose(self) -> None:
        await self._canary.aclose()
        await self._comparer.aclose()

    async def work(self) -> None:
        """For ever; a look that fails is counted, and the next one goes on from there."""
        while True:
            with self.counting():
                await self.look()
            await asyncio.sleep(LOOK_SECONDS)

    async def look(self) -> None:
        """All that is new, to its end. Without a canary nobody asks the store; what comes meanwhile is past."""
        pair = await asyncio.to_thread(self._pairing.now)
        if pair is None:
            self._reader.forget()
            return
        self._metrics.begin(pair.canary, pair.stable)
        keys = await _of_the_log(self._reader.fresh)
        left = MOST_A_LOOK
        for key in keys:
            with self.counting():
                chosen = self._chosen(await _of_the_log(partial(self._reader.lines, key)), pair, left)
                left -= len(chosen)
                await asyncio.gather(*(self._compared(asked, pair) for asked in chosen))

    def _chosen(self, lines: Iterable[Asked | None], pair: Pair, most: int) -> list[Asked]:
        """The stable model's own answers with their texts: a canary's users are no comparison."""
        known = [one for one in lines if one is not None]
        unreadable = sum(one is None for one in lines)
        own = [one for one in known if (one.version, one.outcome) == (pair.stable, "answered")]
        share = [one for one in own if sampled(one.request_id, self._config.share)]
        told = [one for one in share if one.question and one.rewrite]
        reasons: dict[Reason, int] = {
            "unreadable": unreadable, "no_text": len(share) - len(told), "too_many": len(told) - most,
        }  # fmt: skip
        for reason, count in reasons.items():
            if count > 0:
                self._metrics.failed(reason, count)
        return told[:most]

    async def _compared(self, asked: Asked, pair: Pair) -> None:
        """One question is one pair, or one failure."""
        async with self._slots:
            with self.counting():
                self._metrics.pair(pair.canary, pair.stable, await self._outcome(asked, pair))

    async def _outcome(self, asked: Asked, pair: Pair) -> Outcome:
        rewrite = await self._canary.rewrite(asked, pair)
        if rewrite == asked.rewrite:
            return "tied"
        return await self._comparer.compare(asked, rewrite, asked.rewrite)

    @contextmanager
    def counting(self) -> Iterator[None]:
        """What fails is counted, and said without anything of the question."""
        try:
            yield
        except Failure as failure:
            self._metrics.failed(failure.reason)
            log.warning("%s: %s", failure.reason, failure)
        except Exception as error:  # whoever wrote the log may have meant harm: the next question is another
            self._metrics.failed("unexpected")
            log.error("unexpected: %s", type(error).__name__)


async def _of_the_log(read: Callable[[], Read]) -> Read:
    """Off the loop: a store may be slow."""
    try:
        return await asyncio.to_thread(read)
    except (QinglanError, OSError) as error:
        raise Failure("payload_log", str(error)) from error
