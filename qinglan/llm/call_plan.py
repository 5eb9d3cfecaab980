"""Turns requests to paid models into calls: the bytes to send, the journal key and the largest possible cost.

`qinglan prepay` and the gateway both use this module, so the same request has the same journal key in both.
"""

from collections.abc import Set
from itertools import count
from typing import Any, NamedTuple

from qinglan.llm.answer_format import request_fields
from qinglan.llm.config import PaidModel
from qinglan.llm.paid.journal import Call, Entry, make_call, retry_sample
from qinglan.llm.providers.prices import Usage, cost, estimate_tokens, worst_cost


class PaidRequest(NamedTuple):
    """A request from a stage, and the row that it is for."""

    entry: Entry
    messages: list[Any]
    response_format: dict[str, Any] | None = None
    sample: int = 0


class PlannedCall(NamedTuple):
    """A request in the form that is sent to the model."""

    call: Call
    entry: Entry
    request: dict[str, Any]
    worst: float
    """Largest possible cost at the live price."""

    tokens: int
    structured: bool
    """True if the answer must be a JSON object."""


def plan_call(paid_request: PaidRequest, model: PaidModel) -> PlannedCall:
    request = build_request(model, paid_request.messages, paid_request.response_format)
    call = make_call(request, paid_request.sample)
    worst = worst_cost(model.price, call.request, model.max_output_tokens)
    tokens = estimate_tokens(call.request.decode()) + model.max_output_tokens
    return PlannedCall(call, paid_request.entry, request, worst, tokens, paid_request.response_format is not None)


def next_retry(first: PlannedCall, answered: Set[str]) -> PlannedCall:
    """Return the first call among `first` and its retries whose key is not in `answered`; each retry has its own
    key."""
    for retry in count():
        call = make_call(first.request, retry_sample(first.call.sample, retry))
        if call.key not in answered:
            return first._replace(call=call)
    raise AssertionError("retries never end")


def booked(model: PaidModel, usage: Usage | None, worst: float, factor: float = 1.0) -> tuple[Usage, float]:
    """Return the tokens and the cost to record for an answer. `factor` is the share of the live price that is paid.

    If the service reports no tokens, or so many that they cost more than `worst`, the result is no tokens and
    `worst`.
    """
    if usage is None:
        return Usage(), worst
    # worst: UTF-8 bytes of the request and the limit of the answer, at the dearest prices (worst_cost).
    charged = factor * cost(model.price, usage.input, usage.output, usage.cached)
    return (usage, charged) if charged <= worst else (Usage(), worst)


def build_request(model: PaidModel, messages: list[Any], response_format: dict[str, Any] | None) -> dict[str, Any]:
    """Build the request with only the parameters that the model accepts."""
    request: dict[str, Any] = {**model.extra_body, "model": model.model, "messages": messages}
    request[model.max_tokens_parameter] = model.max_output_tokens
    if model.temperature is not None:
        request["temperature"] = model.temperature
    if model.reasoning_effort is not None:
        request["reasoning_effort"] = model.reasoning_effort
    if response_format is not None:
        request |= request_fields(model.structured_answers, messages, response_format)
    return request
