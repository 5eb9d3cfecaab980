"""What is asked of a paid model, and what goes to it: plain data, and the functions that make one of the other."""

from typing import Any, NamedTuple

from qinglan.llm.batch_queue import DeferredCall
from qinglan.llm.config import PaidModel
from qinglan.llm.journal import Call, Entry, make_call
from qinglan.llm.prices import Usage, cost, estimate_tokens, worst_cost
from qinglan.llm.provider_quirks import adapt_request
from qinglan.llm.upstream import Upstream


class PaidRequest(NamedTuple):
    entry: Entry
    sample: int
    messages: list[dict[str, Any]]
    response_format: dict[str, Any] | None


class ServedAnswer(NamedTuple):
    """An answer as it was received."""

    raw: bytes
    call: str
    cached: bool


class PlannedCall(NamedTuple):
    """One call on its way, for the entry that asked first."""

    call: Call
    entry: Entry
    upstream: Upstream
    request: dict[str, Any]
    worst: float
    tokens: int


def plan_call(ask: PaidRequest, upstream: Upstream) -> PlannedCall:
    model = upstream.model
    request = build_request(model, ask.messages, ask.response_format)
    call = make_call(request, ask.sample)
    worst = worst_cost(model.price, call.request, model.max_output_tokens)
    tokens = estimate_tokens(call.request.decode()) + model.max_output_tokens
    return PlannedCall(call, ask.entry, upstream, request, worst, tokens)


def plan_batch_call(flight: PlannedCall) -> DeferredCall:
    """The same for a batch, at a batch's price."""
    batch = flight.upstream.model.batch
    return DeferredCall(flight.call, flight.entry, flight.worst * (batch.price_factor if batch else 1.0))


def call_cost(flight: PlannedCall, usage: Usage) -> float:
    return cost(flight.upstream.model.price, usage.input, usage.output, usage.cached)


def build_request(
    model: PaidModel, messages: list[dict[str, Any]], response_format: dict[str, Any] | None
) -> dict[str, Any]:
    """What the model is sent: only parameters that it accepts."""
    request: dict[str, Any] = {**model.extra_body, "model": model.model, "messages": messages}
    request[model.max_tokens_parameter] = model.max_output_tokens
    if model.temperature is not None:
        request["temperature"] = model.temperature
    if model.reasoning_effort is not None:
        request["reasoning_effort"] = model.reasoning_effort
    if response_format is not None:
        request["messages"], request["response_format"] = adapt_request(model.model, messages, response_format)
    return request
