"""Check for each paid model that its host accepts the key and, with `--paid`, that one real call is answered."""

import asyncio
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from typing import Any

import orjson

from pipelines.checks.checks import Check
from qinglan.errors import ConfigError, RowError
from qinglan.llm.answer_format import AnswerFormat
from qinglan.llm.call_plan import build_request
from qinglan.llm.config import PaidModel
from qinglan.llm.providers.prices import Usage, worst_cost
from qinglan.llm.providers.upstream import FatalUpstreamError, RejectedRequestError, Upstream, UpstreamError
from qinglan.llm.usable_answer import cleaned_answer, usable_text
from qinglan.prompts import JUDGE_FORMAT, Question, judge_messages, teacher_messages
from qinglan.reward.judge import read_score

AGAIN = "Run qinglan doctor again; if it stays, see docs/teachers.md."
SHOWN_MODELS = 10
"""Highest number of a host's model names in the message about a wrong model name."""

CALL_SECONDS = 60.0
LIST_SECONDS = 10.0
SAMPLE = Question("doctor", "那它一天吃几次", "", "用户正在了解虾青素软胶囊")
SYSTEM = "你是Query改写专家。只返回改写后的查询。"
OTHER_FORMATS: tuple[AnswerFormat, ...] = ("json_schema", "json_object", "tool", "text")


def provider_checks(models: Mapping[str, PaidModel], paid: bool) -> Iterator[Check]:
    """Check each model: with `paid` by one real call, otherwise by the host's list of models."""
    for role, model in models.items():
        try:
            yield asyncio.run(call_check(role, model)) if paid else list_check(role, model)
        except ConfigError as error:
            yield Check("error", role, str(error))


def list_check(role: str, model: PaidModel) -> Check:
    """Request the host's list of models, which is free and shows if the host accepts the key."""
    import httpx2

    from qinglan.http.http_client import certificate_advice

    try:
        status, names = listed_models(role, model)
    except httpx2.HTTPError as error:
        next_step = f"See base_url and the network.{certificate_advice(error)}"
        return Check("error", role, f"{models_url(model)}: no answer ({type(error).__name__}).", next_step)
    if status in (401, 403):
        what = f"{models_url(model)}: the key in {model.api_key_env} is not accepted ({status})."
        return Check("error", role, what, f"export {model.api_key_env}=...")
    if not names:
        what = f"{model.base_url} answers and lists no models."
        return Check("warning", role, what, "qinglan doctor --paid asks it.")
    has_key = bool(os.environ.get(model.api_key_env, "").strip())
    url = model.base_url
    if model.model not in names:
        what = f"{url} {'takes the key' if has_key else 'answers without a key'}, and lists no model {model.model}."
        return Check("warning", role, what, known_models(role, model, names))
    what = f"{url} {'takes the key' if has_key else 'answers without a key'} and has {model.model}."
    return Check("ok", role, what)


def models_url(model: PaidModel) -> str:
    return f"{model.base_url.rstrip('/')}/models"


def listed_models(role: str, model: PaidModel) -> tuple[int, list[str]]:
    """Request the host's list of models; returns the HTTP status and the model names, empty if none are listed."""
    from qinglan.http.http_client import sync_client

    # https://platform.openai.com/docs/api-reference/models/list, which other hosts copy.
    key = model.read_key(role)
    with sync_client(timeout=LIST_SECONDS) as http:
        answer = http.get(models_url(model), headers={"Authorization": f"Bearer {key}"})
    try:
        names = [str(item["id"]) for item in answer.json()["data"]]
    except (ValueError, LookupError, TypeError):
        names = []
    return answer.status_code, names if answer.status_code == 200 else []


def known_models(role: str, model: PaidModel, names: Sequence[str]) -> str:
    """Return the advice for a wrong model name: choose one of the host's names, the most similar first."""
    alike = get_close_matches(model.model, [name[:80] for name in names], SHOWN_MODELS, cutoff=0.0)
    more = f" It has {len(names):,}." if len(names) > len(alike) else ""
    return f"Set gateway.{role}.model to one that it has: {', '.join(alike)}.{more}"


def refused_model_step(role: str, model: PaidModel) -> str:
    """Return the advice after a host refused a call for good. If the host's list of models lacks the profile's model,
    the advice names similar models, otherwise the settings to check."""
    import httpx2

    with suppress(ConfigError, httpx2.HTTPError):
        _, names = listed_models(role, model)
        if names and model.model not in names:
            return known_models(role, model, names)
    return f"See {role}.base_url, {role}.model and {model.api_key_env}."


async def call_check(role: str, model: PaidModel) -> Check:
    """Make one call as a run would: a rewrite for the teacher, a judgement for the other roles."""
    try:
        words, usage = await ask_once(role, model)
    except RejectedRequestError as error:
        if role == "teacher":
            return Check("error", role, str(error), "See the model's settings: docs/teachers.md.")
        accepted = await accepted_format(role, model)
        step = f"Set answer_format: {accepted} for the {role}." if accepted else "See docs/teachers.md."
        return Check("error", role, f"{error} It was asked for {model.structured_answers}.", step)
    except FatalUpstreamError as error:
        return Check("error", role, str(error), refused_model_step(role, model))
    except (RowError, UpstreamError) as error:
        setting = f"gateway.{role}.max_output_tokens"
        raise_it = f"{setting} is {model.max_output_tokens:,}. Set {setting}: {2 * model.max_output_tokens}, or more."
        return Check("error", role, str(error), raise_it if error.reason == "truncated" else AGAIN)
    what = f"{model.model} answered {words!r}, for {call_cost(role, model)} at most."
    if usage:
        return Check("ok", role, what)
    return Check(
        "warning", role,
        f"{what} The answer has no `usage` with a count of tokens that can be right: a run books each such answer at "
        "the most that it can cost, and its budget ends the run early.",
        f"Let the host report `usage`. If it cannot, lower gateway.{role}.max_output_tokens to what an answer needs, "
        "and raise gateway.budget.",
    )  # fmt: skip


async def ask_once(role: str, model: PaidModel) -> tuple[str, Usage | None]:
    """Make one call; return the beginning of the rewrite, or the judge's points, and the token counts, None if the
    host reports none that can be right."""
    upstream = Upstream(model, role, CALL_SECONDS)
    try:
        completion = await upstream.complete(request_of(role, model))
    finally:
        await upstream.aclose()
    text = usable_text(orjson.loads(cleaned_answer(completion.raw, model)), role != "teacher")
    words = text.strip()[:60] if role == "teacher" else f"{read_score(orjson.loads(text)):g} points"
    return words, completion.usage


async def accepted_format(role: str, model: PaidModel) -> AnswerFormat | None:
    """Find the first other answer format in which this model gives a judgement; None if there is none."""
    for answer_format in OTHER_FORMATS:
        if answer_format != model.structured_answers:
            with suppress(UpstreamError, RowError):
                await ask_once(role, model.model_copy(update={"answer_format": answer_format}))
                return answer_format
    return None


def request_of(role: str, model: PaidModel) -> Any:
    if role == "teacher":
        return build_request(model, teacher_messages(SAMPLE, SYSTEM), None)
    return build_request(model, judge_messages(SAMPLE, "虾青素软胶囊 每日服用频次"), JUDGE_FORMAT)


def call_cost(role: str, model: PaidModel) -> str:
    worst = worst_cost(model.price, orjson.dumps(request_of(role, model)), model.max_output_tokens)
    return f"{worst:.4f} {model.price.currency}"
