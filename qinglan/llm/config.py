"""Settings of the paid models of a run: addresses, accepted parameters, prices and budget."""

import os
import re
from datetime import date
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from qinglan.config import Config, Positive
from qinglan.errors import ConfigError
from qinglan.http.addresses import Address, secret_field
from qinglan.llm.answer_format import AnswerFormat, default_format
from qinglan.llm.host_allowlist import is_local
from qinglan.llm.provider_quirks import REFUSALS, find_incompatible_setting
from qinglan.rag.service_shape import RagService

Role = Literal["teacher", "judge", "examiner"]
"""Roles of paid models: the teacher writes rewrites, the judge scores them for training, and the examiner scores them
for the verdict."""


class Price(Config):
    """Prices per million tokens on a given day."""

    input: float = Field(ge=0)
    """Price of prompt tokens."""

    cached_input: float = Field(ge=0)
    """Price of prompt tokens that the service had cached."""

    output: float = Field(ge=0)
    """Price of answer tokens, reasoning included."""

    as_of: date
    """Day on which the price list was read. A plan shows it, so that a stale price is noticed."""

    currency: str = "USD"
    """Currency of the prices. It must be the same for all models of a run, since the budget is in one currency."""


class PaidModel(Config):
    """One OpenAI-compatible model."""

    base_url: Address = "http://127.0.0.1:8100/v1"
    """Address of the service. Its host must be on the operator's allowlist, `QINGLAN_ALLOWED_HOSTS`; loopback is
    always allowed."""

    model: str
    """Model name at the service."""

    api_key_env: str = "QINGLAN_API_KEY"
    """Name of the environment variable that holds the key. The key itself is never in a file."""

    price: Price
    """Price of a million tokens at this service."""

    temperature: float | None = 0.3
    """Sampling temperature; None for reasoning models, which refuse it."""

    max_output_tokens: Positive = 200
    """Longest answer in tokens, thinking included. If an answer is cut at this limit, its row is quarantined."""

    max_tokens_parameter: Literal["max_tokens", "max_completion_tokens"] = "max_completion_tokens"
    """Request field for `max_output_tokens`. OpenAI's reasoning models refuse `max_tokens`; DeepSeek and others know
    only `max_tokens`."""

    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    """Effort that a reasoning model spends on thinking; None leaves it to the service. Each provider accepts only
    some of these words."""

    answer_format: AnswerFormat | None = None
    """Format in which judgements are requested: `json_schema`, `json_object`, `tool` (a function call) or `text`.
    None takes the host's default: `json_object` for DeepSeek and a few other hosts, else `json_schema`."""

    extra_body: dict[str, Any] = {}
    """Further request fields in the service's own format, such as `thinking: {type: disabled}` for DeepSeek, or
    `chat_template_kwargs: {enable_thinking: false}` for Qwen3 on vLLM."""

    strip_thinking: bool = False
    """Removal of `<think>...</think>` from answers, which a vLLM without a reasoning parser leaves in."""

    refusal_patterns: tuple[str, ...] = REFUSALS
    """Regular expressions for the beginning of an answer that refuses in words, such as 抱歉，我(不能|无法). Such an
    answer counts as refused, as if the service had marked it. Default: REFUSALS in qinglan/llm/provider_quirks.py."""

    typical_seconds: float = 2.0
    """Seconds that one answer takes, as the plan assumes. The report uses it only if the journal has no live call."""

    batch_price_factor: float = Field(default=0.5, gt=0, le=1)
    """Price in the provider's batch API as a share of the live price. `qinglan prepay` uses that API."""

    @model_validator(mode="after")
    def _acceptable(self) -> Self:
        wrong = find_incompatible_setting(dict(self))
        if wrong:
            raise ValueError(wrong)
        if secret := secret_field(self.extra_body):
            raise ValueError(f"extra_body.{secret}: a key is in no file. Set the environment variable of api_key_env")
        for pattern in self.refusal_patterns:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"refusal_patterns: {pattern!r} is no regular expression ({error})") from error
        return self

    def read_key(self, role: str) -> str:
        """Read the key from the environment; a service on this machine needs none."""
        if key := os.environ.get(self.api_key_env, "").strip():
            return key
        if is_local(self.base_url):
            return "none"
        raise ConfigError(
            f"{role}: no key for {self.base_url}. Set the environment variable {self.api_key_env}; nothing was sent."
        )

    @property
    def structured_answers(self) -> AnswerFormat:
        return self.answer_format or default_format(self.base_url, self.model)


class Limits(Config):
    """Limits of one run, for all its stages and workers together."""

    concurrency: Positive = 10
    """Number of paid calls at once; the original plan says 5 to 10."""

    requests_per_minute: Positive = 3000
    """Requests per minute: the provider's limit for your account, or less."""

    tokens_per_minute: Positive = 2_000_000
    """Tokens per minute: the provider's limit for your account, or less. Each call counts with its prompt and its
    longest possible answer."""

    timeout_seconds: float = 60.0
    """Seconds after which a call without an answer counts as possibly billed, and is tried again."""

    attempts: Positive = 5
    """Number of tries of one call before its row is quarantined. If no connection is possible, the run stops
    instead."""

    longest_wait_seconds: float = 120.0
    """Longest wait in seconds for a service that answers 429, for one Retry-After or for all pauses until the next
    answer. A longer wait is an outage: the run stops, and can be resumed later."""

    outage_after: Positive = 8
    """Number of consecutive calls that fail, each after all its tries, before the run stops."""


class RagUpstream(RagService):
    """The RAG service behind the gateway."""

    base_url: Address = "http://127.0.0.1:8000"
    """Address of the service. Its host must be on the operator's allowlist too."""

    concurrency: Positive = 20
    """Number of retrievals at once; the original plan says 10 to 20."""

    timeout_seconds: float = 30.0
    """Seconds after which a retrieval without an answer is tried again."""

    attempts: Positive = 4
    """Number of tries of one retrieval before the run stops with an outage."""


class MlflowUpstream(Config):
    """The MLflow server that trainings reach through the gateway."""

    base_url: Address
    """Address of the server, such as https://mlflow.example.com. Its host must be on the operator's allowlist too."""

    token_env: str = ""
    """Name of the environment variable that holds the token; empty if the server needs no token."""

    timeout_seconds: float = 30.0
    """Seconds after which a request without an answer has failed."""


class GatewayConfig(Config):
    """Settings of a run's gateway."""

    teacher: PaidModel
    """Model that writes the rewrites that the student learns from and competes with."""

    judge: PaidModel
    """Model that writes the needs and scores rewrites. Another model family than the teacher's is better."""

    examiner: PaidModel | None = None
    """Model that scores rewrites for the verdict. Another model family than the judge's is better, since the training
    follows the judge's taste. Without an examiner the judge scores them, and the report says so."""

    budget: float = Field(default=50.0, gt=0)
    """Budget in the currency of the prices. The next call that could exceed it is refused; the run can be resumed."""

    limits: Limits = Limits()
    """Limits of paid calls."""

    rag: RagUpstream = RagUpstream()
    """RAG service and its limits."""

    mlflow: MlflowUpstream | None = None
    """MLflow server for trainings with `mlflow` in `trackers`; required for them on a cluster. On a laptop such a
    training may use its own address instead."""

    def models(self) -> dict[Role, PaidModel]:
        return {"teacher": self.teacher, "judge": self.judge, "examiner": self.examiner or self.judge}


def check_currency(config: GatewayConfig) -> None:
    """Raise a ConfigError if prices are in several currencies, because the budget is in one currency."""
    currencies = {role: model.price.currency for role, model in config.models().items()}
    if len(set(currencies.values())) > 1:
        listed = ", ".join(f"{role} in {currency}" for role, currency in currencies.items())
        raise ConfigError(f"prices: {listed}. One budget needs one currency: convert them.")
