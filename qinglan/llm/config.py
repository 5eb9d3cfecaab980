"""The paid models of a run: where they are, what they accept, what they cost, what may be spent."""

from datetime import date
from typing import Literal

from pydantic import Field

from qinglan.config import Config, Positive

Role = Literal["teacher", "judge"]


class Price(Config):
    """Money per million tokens, as of a day."""

    input: float = Field(ge=0)
    cached_input: float = Field(ge=0)
    output: float = Field(ge=0)
    as_of: date
    """The day someone read the price list. A plan shows it, so that a stale price is seen."""

    currency: str = "USD"


class PaidModel(Config):
    """One OpenAI-compatible model."""

    base_url: str = "http://127.0.0.1:8100/v1"
    """Its host must be on the operator's allowlist: QINGLAN_ALLOWED_HOSTS, by default loopback alone."""

    model: str
    api_key_env: str = "QINGLAN_API_KEY"
    """Name of the environment variable that holds the key. The key itself is never in a file."""

    price: Price
    temperature: float | None = 0.3
    """None for reasoning models, which refuse it."""

    max_output_tokens: Positive = 200
    max_tokens_parameter: Literal["max_tokens", "max_completion_tokens"] = "max_completion_tokens"
    """Reasoning models refuse `max_tokens`; some compatible servers know nothing else."""

    typical_seconds: float = 2.0
    """One answer's time, for the plan's estimate only."""


class Limits(Config):
    """What one run may do at once, over all its stages and workers."""

    concurrency: Positive = 10
    """Paid calls at once; the plan's 5-10."""

    requests_per_minute: Positive = 3000
    tokens_per_minute: Positive = 2_000_000
    timeout_seconds: float = 60.0
    attempts: Positive = 5
    """Tries of one call before its row is quarantined."""

    longest_wait_seconds: float = 120.0
    """A Retry-After above it is an outage: better to stop and resume than to hang."""

    outage_after: Positive = 8
    """Calls in a row that failed for good, with no answer in between, before the run stops."""


class RagUpstream(Config):
    """The RAG service behind the gateway."""

    base_url: str = "http://127.0.0.1:8000"
    concurrency: Positive = 20
    """Retrievals at once; the plan's 10-20."""

    timeout_seconds: float = 30.0
    attempts: Positive = 4


class GatewayConfig(Config):
    """Everything that the run's one gateway owns."""

    teacher: PaidModel
    judge: PaidModel
    budget: float = Field(default=50.0, gt=0)
    """In the currency of the prices. The next call that could pass it is refused; the run can be resumed."""

    limits: Limits = Limits()
    rag: RagUpstream = RagUpstream()
