"""Settings of the paid models of a run: addresses, accepted parameters, prices and budget."""

import re
from datetime import date
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from qinglan.config import Config, Positive
from qinglan.errors import ConfigError
from qinglan.http.addresses import Address, secret_field
from qinglan.llm.answer_format import AnswerFormat, default_format
from qinglan.llm.provider_quirks import REFUSALS, find_incompatible_setting
from qinglan.rag.service_shape import RagService

Role = Literal["teacher", "judge", "examiner"]
"""Roles of paid models: the teacher writes rewrites, the judge scores them for training, the examiner for the
verdict."""


class Price(Config):
    """Prices per million tokens, as of a day."""

    input: float = Field(ge=0)
    """Price of prompt tokens."""

    cached_input: float = Field(ge=0)
    """Price of prompt tokens that the service had cached."""

    output: float = Field(ge=0)
    """Price of answer tokens, reasoning included."""

    as_of: date
    """Day on which the price list was read. A plan shows it, so that a stale price is noticed."""

    currency: str = "USD"
    """Currency, the same for all models of a run: a budget is in one currency."""


class PaidModel(Config):
    """One OpenAI-compatible model."""

    base_url: Address = "http://127.0.0.1:8100/v1"
    """Address of the service. Its host must be on the operator's allowlist, QINGLAN_ALLOWED_HOSTS; by default only
    loopback is."""

    model: str
    """Model name at the service."""

    api_key_env: str = "QINGLAN_API_KEY"
    """Name of the environment variable that holds the key. The key itself is never in a file."""

    price: Price
    """Price of a million tokens at this service."""

    temperature: float | None = 0.3
    """Sampling temperature; None for reasoning models, which refuse it."""

    max_output_tokens: Positive = 200
    """Longest answer. An answer that is cut here is quarantined; reasoning models need room to think."""

    max_tokens_parameter: Literal["max_tokens", "max_completion_tokens"] = "max_completion_tokens"
    """Name of the limit in requests. Reasoning models refuse `max_tokens`; DeepSeek and others know nothing else."""

    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    """Length of a reasoning model's thoughts; None leaves it to the service. Providers take some of these words."""

    answer_format: AnswerFormat | None = None
    """Form in which judgements are asked for: `json_schema`, `json_object`, `tool` (a function call) or `text`. None
    takes the one that the host is known for: json_object at DeepSeek and a few more, else json_schema."""

    extra_body: dict[str, Any] = {}
    """Further fields of the request in the service's own format: `thinking: {type: disabled}` at DeepSeek,
    `chat_template_kwargs: {enable_thinking: false}` for Qwen3 on vLLM."""

    strip_thinking: bool = False
    """Removal of `<think>...</think>` from answers: a vLLM without a reasoning parser leaves it in."""

    refusal_patterns: tuple[str, ...] = REFUSALS
    """Regular expressions for the beginning of an answer that declines in words, such as 抱歉，我(不能|无法): its
    row is refused, as if the service had said so itself. By default those of qinglan/llm/provider_quirks.py."""

    typical_seconds: float = 2.0
    """Seconds of one answer, assumed by the plan; the report takes them only if the journal has no live call."""

    batch_price_factor: float = Field(default=0.5, gt=0, le=1)
    """Price of a token in the provider's batch API, which `qinglan prepay` uses, as a share of the live price."""

    @model_validator(mode="after")
    def _acceptable(self) -> Self:
        """Reject settings that would fail or mislead at every call."""
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

    @property
    def structured_answers(self) -> AnswerFormat:
        """The form in which this model is asked for an object."""
        return self.answer_format or default_format(self.base_url, self.model)


class Limits(Config):
    """Limits of one run over all its stages and workers."""

    concurrency: Positive = 10
    """Paid calls at once; the plan's 5-10."""

    requests_per_minute: Positive = 3000
    """The provider's limit for your account, or less."""

    tokens_per_minute: Positive = 2_000_000
    """The provider's token limit, or less; prompts and the longest possible answers are counted."""

    timeout_seconds: float = 60.0
    """Seconds after which a call without an answer counts as possibly billed, and is tried again."""

    attempts: Positive = 5
    """Tries of one call before its row is quarantined; without any connection, before the run stops."""

    longest_wait_seconds: float = 120.0
    """Longest wait in seconds for a service that answers 429: one Retry-After, or all pauses in a row without an
    answer. A longer one is an outage: better to stop and resume than to hang."""

    outage_after: Positive = 8
    """Calls in a row that failed for good, with no answer in between, before the run stops."""


class RagUpstream(RagService):
    """The RAG service behind the gateway."""

    base_url: Address = "http://127.0.0.1:8000"
    """Address of the service. Its host must be on the operator's allowlist too."""

    concurrency: Positive = 20
    """Retrievals at once; the plan's 10-20."""

    timeout_seconds: float = 30.0
    """Seconds after which a retrieval without an answer is tried again."""

    attempts: Positive = 4
    """Tries of one retrieval before the run stops with an outage."""


class MlflowUpstream(Config):
    """The MLflow server that trainings reach through the gateway."""

    base_url: Address
    """Address of the server, such as https://mlflow.example.com. Its host must be on the operator's allowlist too."""

    token_env: str = ""
    """Name of the environment variable that holds the token; empty if the server asks for none."""

    timeout_seconds: float = 30.0
    """Seconds after which a request without an answer has failed."""


class GatewayConfig(Config):
    """Settings of a run's gateway."""

    teacher: PaidModel
    """Model that writes the rewrites that the student learns from and competes with."""

    judge: PaidModel
    """Model that writes the needs and scores rewrites; better of another family than the teacher."""

    examiner: PaidModel | None = None
    """Model that scores rewrites for the verdict; of another family than the judge, whose taste was trained for.
    Without an examiner the judge answers, and the report says so."""

    budget: float = Field(default=50.0, gt=0)
    """Budget in the currency of the prices. The next call that could exceed it is refused; the run can be resumed."""

    limits: Limits = Limits()
    """Limits of paid calls."""

    rag: RagUpstream = RagUpstream()
    """The RAG service, and its limits."""

    mlflow: MlflowUpstream | None = None
    """MLflow server of trainings whose `trackers` name it; without it they need an address of their own."""

    def models(self) -> dict[Role, PaidModel]:
        """The model of each role."""
        return {"teacher": self.teacher, "judge": self.judge, "examiner": self.examiner or self.judge}


def check_currency(config: GatewayConfig) -> None:
    """Refuse models with prices in several currencies: one budget is counted in one."""
    currencies = {role: model.price.currency for role, model in config.models().items()}
    if len(set(currencies.values())) > 1:
        listed = ", ".join(f"{role} in {currency}" for role, currency in currencies.items())
        raise ConfigError(f"prices: {listed}. One budget needs one currency: convert them.")
