"""The LLM judge, through the run's gateway: pointwise for rewards, in pairs for diagnosis, and itself on trial."""

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

import orjson

from qinglan.concurrency import gather_or_cancel
from qinglan.errors import RowError
from qinglan.llm.client import GatewayClient
from qinglan.llm.config import Role
from qinglan.prompts import JUDGE_FORMAT, PAIR_FORMAT, Message, judge_messages, judge_pair_messages
from qinglan.reward.episode import Prompt

MAX_JUDGE_SCORE = 5.0
UNRELATED_TEXT = "发票抬头怎么改，包裹到哪了"
"""No answer to any question: a judge that prefers it to the need itself does not judge."""


async def score_rewrite(gateway: GatewayClient, prompt: Prompt, rewrite: str, role: Role = "judge") -> float:
    """The judge's 综合得分 over 5; a RowError when it gave none that can be used."""
    said = await _asked(gateway, prompt, judge_messages(prompt, rewrite), JUDGE_FORMAT, role)
    return read_score(said) / MAX_JUDGE_SCORE


def read_score(said: dict[str, Any]) -> float:
    """The overall score of a judgement, 1 to 5."""
    score = said.get("综合得分")
    if isinstance(score, bool) or not isinstance(score, int | float) or not 1 <= score <= MAX_JUDGE_SCORE:
        raise RowError("malformed", f"综合得分 is {score!r}, no number from 1 to 5.", orjson.dumps(said).decode())
    return float(score)


class Preference(NamedTuple):
    """Which of two rewrites is better, asked in both orders."""

    better: Literal["first", "second", "tie"]
    flipped: bool
    """The judge chose by position: each time the one shown first, or each time the other. Counts as a tie."""


async def compare_rewrites(
    gateway: GatewayClient, prompt: Prompt, first: str, second: str, role: Role = "judge"
) -> Preference:
    """Ask in both orders."""
    shown = (judge_pair_messages(prompt, first, second), judge_pair_messages(prompt, second, first))
    said = await gather_or_cancel(*(_asked(gateway, prompt, messages, PAIR_FORMAT, role) for messages in shown))
    return combine_choices(*(read_choice(one) for one in said))


def read_choice(said: dict[str, Any]) -> str:
    """甲, 乙 or 相同."""
    choice = said.get("更好")
    if choice not in ("甲", "乙", "相同"):
        raise RowError("malformed", f"更好 is {choice!r}, not 甲, 乙 or 相同.", orjson.dumps(said).decode())
    return str(choice)


def combine_choices(straight: str, swapped: str) -> Preference:
    """One preference from the two orders; whoever is not preferred in both has not won."""
    if straight == swapped != "相同":
        return Preference("tie", flipped=True)
    if (straight, swapped) == ("甲", "乙"):
        return Preference("first", flipped=False)
    if (straight, swapped) == ("乙", "甲"):
        return Preference("second", flipped=False)
    return Preference("tie", flipped=False)


def flip_rate(preferences: Iterable[Preference]) -> float:
    """Share of pairs that the judge decided by their order; 0 of none."""
    flips = [preference.flipped for preference in preferences]
    return sum(flips) / len(flips) if flips else 0.0


async def passes_control_pair(gateway: GatewayClient, prompt: Prompt) -> bool:
    """Whether the judge puts the need itself above a text about something else."""
    good, bad = await gather_or_cancel(
        *(score_rewrite(gateway, prompt, text) for text in (prompt.need, UNRELATED_TEXT))
    )
    return good > bad


async def _asked(
    gateway: GatewayClient, prompt: Prompt, messages: list[Message], shape: dict[str, Any], role: Role
) -> dict[str, Any]:
    answer = await gateway.ask(role, messages, row=prompt.id, response_format=shape)
    said: dict[str, Any] = orjson.loads(answer.text)
    return said
