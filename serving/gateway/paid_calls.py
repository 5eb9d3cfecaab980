"""Answer a run's paid calls: from the journal, from an equal call under way, or by sending and journaling the call.

`PaidCalls.answer` is the entry point. Each attempt to send a call runs `_attempt` once, which reserves the highest
possible cost of the call in the budget.
"""

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import stamina

from qinglan.errors import BudgetError, OutageError, RowError
from qinglan.llm.budget import Budget
from qinglan.llm.call_plan import PaidRequest, PlannedCall, booked, next_retry, plan_call
from qinglan.llm.config import GatewayConfig
from qinglan.llm.limits import CircuitBreaker, RequestThrottle
from qinglan.llm.paid.journal import Journal, JournalledAnswer, Outcome, length_limit, prompt_key
from qinglan.llm.providers.upstream import (
    FatalUpstreamError,
    RateLimitError,
    TransientError,
    UnreachableError,
    Upstream,
    UpstreamError,
)
from qinglan.llm.usable_answer import is_cut, is_usable
from serving.gateway.metrics import Metrics
from serving.gateway.service_status import ServiceStatus

REFUSED = "refused"
UNUSABLE = "unusable"

RUN_AGAIN = "Run the same command again when it answers; nothing of what was answered is lost."
STOPPED_MESSAGE = "The gateway is being stopped. Start it again on the same journal: what was paid for costs nothing."


class GatewayStopping(OutageError):
    """Raised while this gateway is stopping; another gateway can be started on the same journal."""


class ServedAnswer(NamedTuple):
    """Answer as the service sent it, with the key of its call. `cached` is True if this request paid nothing."""

    raw: bytes
    call: str
    cached: bool


OUTCOMES: dict[type[BaseException], str] = {RowError: "failed", BudgetError: "budget"}


class PaidCalls:
    """All paid calls of a run."""

    def __init__(
        self,
        config: GatewayConfig,
        journal: Journal,
        budget: Budget,
        upstreams: Mapping[str, Upstream],
        metrics: Metrics,
    ) -> None:
        self._limits = config.limits
        self._journal, self._budget, self._upstreams, self._metrics = journal, budget, upstreams, metrics
        self._pace = RequestThrottle(config.limits)
        self._breaker = CircuitBreaker(config.limits.outage_after)
        self._status = ServiceStatus()
        self._flights: dict[str, asyncio.Task[bytes]] = {}
        self._unusable: dict[str, str] = {}
        """Step of each paid call with an unusable answer, by the call's key. Only the next run repeats the call."""

        self._interruptible: set[asyncio.Task[Any]] = set()
        self._stopping = False

    async def answer(self, request: PaidRequest) -> ServedAnswer:
        """Answer from the journal, from an equal call under way, or by a paid call."""
        first = plan_call(request, self._upstreams[request.entry.role].model)
        if (cached := self._journal.answer(first.call.key)) is not None and self._is_usable(first, cached):
            return self._hit(first, cached)
        answers = self._journal.answers_to_prompt(prompt_key(first.call.request, first.call.sample))
        if (paid := self._served_again(first, answers)) is not None:
            return self._hit(first, paid.response, paid.call)
        flight = next_retry(first, {answer.call for answer in answers})
        if (under_way := self._flights.get(flight.call.key)) is not None:
            return self._hit(flight, await _await_flight(under_way))
        raw = await _await_flight(self._start(flight))
        self._metrics.call(request.entry.role, "answered")
        return ServedAnswer(raw, flight.call.key, cached=False)

    def step_ended(self, step: str) -> None:
        """Allow calls of this step with unusable answers to be sent again. Later requests belong to another run."""
        self._unusable = {call: owner for call, owner in self._unusable.items() if owner != step}

    @property
    def failure(self) -> OutageError | None:
        """Error of the journal after which this gateway must be restarted; None if the journal works."""
        return self._journal.failure

    def hold_up(self) -> str:
        """Explain in a few words why calls wait now; "" if the services answer."""
        return self._status.hold_up(self._pace.rate_limit.left(time.monotonic()))

    def stop(self) -> None:
        """Stop sending. Waiting callers get GatewayStopping; calls that were sent are still awaited and journaled."""
        self._stopping = True
        for task in self._interruptible:
            task.cancel()

    async def drain(self) -> None:
        await asyncio.gather(*self._flights.values(), return_exceptions=True)  # noqa: TID251 - each has its own end

    def _hit(self, flight: PlannedCall, raw: bytes, call: str = "") -> ServedAnswer:
        """Serve an answer that was already paid for, and count it as a hit.

        `call` is the key of another call with the same prompt, if that call was paid for.
        """
        key = call or flight.call.key
        self._journal.hit(key, flight.entry)
        self._metrics.call(flight.entry.role, "hit")
        return ServedAnswer(raw, key, cached=True)

    def _start(self, flight: PlannedCall) -> "asyncio.Task[bytes]":
        """Send the call in a separate task, so that the paid answer is not lost if the caller hangs up."""
        if self._stopping:
            raise GatewayStopping(STOPPED_MESSAGE)
        task = asyncio.create_task(self._pay(flight))
        key = flight.call.key
        self._flights[key] = task
        self._interruptible.add(task)

        def flight_done(done: "asyncio.Task[bytes]") -> None:
            self._flights.pop(key, None)
            self._interruptible.discard(done)
            if not done.cancelled() and (error := done.exception()) is not None:
                self._metrics.call(flight.entry.role, OUTCOMES.get(type(error), "outage"))

        task.add_done_callback(flight_done)
        return task

    async def _pay(self, flight: PlannedCall) -> bytes:
        async with self._pace.slots:
            try:
                raw = await self._send_with_retries(flight)
            except FatalUpstreamError as closed:
                self._breaker.trip(str(closed))
                raise OutageError(str(closed)) from closed
            except UnreachableError as unreachable:
                self._breaker.trip(outage := f"{unreachable} {RUN_AGAIN}")
                raise OutageError(outage) from unreachable
            except UpstreamError as failure:
                await self._journal.failed(flight.call.key, failure.reason, failure.raw)
                if failure.reason == REFUSED:
                    self._breaker.answered()  # the service works, but refuses this question
                elif outage := self._breaker.outage:
                    # The call was under way when the outage began, or is a probe. Its failure does not condemn its
                    # row.
                    raise OutageError(outage) from failure
                else:
                    self._breaker.failed(str(failure))
                raise RowError(failure.reason, str(failure), failure.raw) from failure
        self._breaker.answered()
        return raw

    def _served_again(self, first: PlannedCall, answers: Sequence[JournalledAnswer]) -> JournalledAnswer | None:
        """Choose a journaled answer to this prompt; None if the prompt must be sent (again).

        A usable answer is preferred. Otherwise an unusable answer is chosen if paying again would not help: its call
        was paid for in this run, or its text would be cut at the length limit again.
        """
        if usable := next((answer for answer in answers if self._is_usable(first, answer.response)), None):
            return usable
        limit = length_limit(first.call.request)
        for answer in answers:
            # An answer that was cut at this limit or a higher one would be cut again.
            would_be_cut = 0 < limit <= answer.limit and is_cut(answer.response)
            if answer.call in self._unusable or would_be_cut:
                return answer
        return None

    def _is_usable(self, flight: PlannedCall, raw: bytes) -> bool:
        return is_usable(raw, self._upstreams[flight.entry.role].model, flight.structured)

    async def _send_with_retries(self, flight: PlannedCall) -> bytes:
        """Send a call, and retry it a few times after transient failures."""
        tries, waits = self._limits.attempts, {"wait_initial": 0.25, "wait_max": 20, "wait_jitter": 0.25}
        async for attempt in stamina.retry_context(on=TransientError, attempts=tries, timeout=None, **waits):
            with attempt:
                return await self._wait_out_rate_limits(flight)
        raise AssertionError("a retry loop ends with an answer or an error")

    async def _wait_out_rate_limits(self, flight: PlannedCall) -> bytes:
        """Send a call. After a rate limit error all calls pause, then this call is sent again."""
        while True:
            sent = await self._pace.turn(flight.tokens)
            try:
                raw = await self._attempt(flight)
            except RateLimitError as limited:
                if reason := self._pace.rate_limit.refused(limited.wait, sent, time.monotonic()):
                    raise FatalUpstreamError("rate limit", f"{limited} {reason}") from limited
            else:
                self._pace.rate_limit.answered(sent)
                return raw

    async def _attempt(self, flight: PlannedCall) -> bytes:
        self._breaker.check()
        await self._budget.reserve(flight.worst)
        charged = 0.0
        try:
            with self._uninterrupted():
                number = await self._journal.sent(flight.call, flight.entry, flight.worst)
                if self._stopping:  # committed as sent, but the request has not left yet
                    await self._journal.unanswered(number, "rejected", STOPPED_MESSAGE, 0.0)
                    raise GatewayStopping(STOPPED_MESSAGE)
                charged = flight.worst
                raw, charged = await self._send(flight, number)
                return raw
        except UpstreamError as failure:
            charged = flight.worst if failure.maybe_billed else 0.0
            if self._stopping:
                raise GatewayStopping(STOPPED_MESSAGE) from failure
            raise
        finally:
            self._budget.settle(flight.worst, charged)

    async def _send(self, flight: PlannedCall, number: int) -> tuple[bytes, float]:
        """Send a call that is already journaled as sent. Its answer and cost are journaled before this returns."""
        upstream = self._upstreams[flight.entry.role]
        self._metrics.attempt(flight.entry.role)
        try:
            with self._metrics.under_way.track_inprogress(), self._status.request():
                completion = await upstream.complete(flight.request)
        except UpstreamError as failure:
            self._status.failed(failure)
            charged = flight.worst if failure.maybe_billed else 0.0
            outcome: Outcome = "lost" if failure.maybe_billed else "rejected"
            await self._journal.unanswered(number, outcome, f"{failure} {failure.raw}".strip(), charged)
            raise
        self._status.answered(upstream.where)
        usage, charged = booked(upstream.model, completion.usage, flight.worst)
        reason = "" if self._is_usable(flight, completion.raw) else UNUSABLE
        await self._journal.answered(number, flight.call.key, completion.raw, usage, charged, reason)
        if reason:
            self._unusable[flight.call.key] = flight.entry.step
        return completion.raw, charged

    @contextmanager
    def _uninterrupted(self) -> Iterator[None]:
        """Protect a call from `stop` from before its request is sent until its outcome is in the journal."""
        task = asyncio.current_task()
        assert task is not None
        self._interruptible.discard(task)
        try:
            yield
        finally:
            self._interruptible.add(task)


async def _await_flight(flight: "asyncio.Task[bytes]") -> bytes:
    """Wait for the answer of a call under way. The call continues even if the waiting caller hangs up."""
    try:
        # A cancelled caller must not cancel the paid call, which other callers may wait for.
        return await asyncio.shield(flight)
    except asyncio.CancelledError as error:
        if flight.cancelled():
            raise GatewayStopping(STOPPED_MESSAGE) from error
        raise
