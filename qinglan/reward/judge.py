"""Ask the LLM judge through the gateway to score one rewrite (rewards), to compare two rewrites (diagnosis), or to
score a control pair, whose better text is known."""

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
"""Text that answers no question. A judge that scores it above the need itself is unreliable."""


async def score_rewrite(gateway: GatewayClient, prompt: Prompt, rewrite: str, system: str = "") -> float:
    """Ask the judge for its overall score and divide it by 5; raises a RowError if the answer is unusable."""
    judgement = await _ask_judge(gateway, prompt, judge_messages(prompt, rewrite, system), JUDGE_FORMAT, "judge")
    return read_score(judgement) / MAX_JUDGE_SCORE


def read_score(judgement: dict[str, Any]) -> float:
    score = judgement.get("综合得分")
    if isinstance(score, bool) or not isinstance(score, int | float) or not 1 <= score <= MAX_JUDGE_SCORE:
        raise RowError(
            "malformed", f"综合得分 is {score!r}, no number from 1 to 5.", orjson.dumps(judgement).decode()
        )
    return float(score)


class Preference(NamedTuple):
    """Better one of two rewrites, by a judge that compared them in both orders."""

    better: Literal["first", "second", "tie"]
    flipped: bool
    """True if the judge chose the same position in both orders, and so a different rewrite each time. It is a tie."""


async def compare_rewrites(
    gateway: GatewayClient, prompt: Prompt, first: str, second: str, role: Role = "judge"
) -> Preference:
    shown = (judge_pair_messages(prompt, first, second), judge_pair_messages(prompt, second, first))
    judgements = await gather_or_cancel(
        *(_ask_judge(gateway, prompt, messages, PAIR_FORMAT, role) for messages in shown)
    )
    return combine_choices(*(read_choice(judgement) for judgement in judgements))


def read_choice(judgement: dict[str, Any]) -> str:
    choice = judgement.get("更好")
    if choice not in ("甲", "乙", "相同"):
        raise RowError("malformed", f"更好 is {choice!r}, not 甲, 乙 or 相同.", orjson.dumps(judgement).decode())
    return str(choice)


def combine_choices(straight: str, swapped: str) -> Preference:
    """Combine the choices of both orders; a rewrite wins only if it is preferred in both."""
    # A judge with a bias for one position names the same position in both orders.
    if straight == swapped != "相同":
        return Preference("tie", flipped=True)
    if (straight, swapped) == ("甲", "乙"):
        return Preference("first", flipped=False)
    if (straight, swapped) == ("乙", "甲"):
        return Preference("second", flipped=False)
    return Preference("tie", flipped=False)


async def passes_control_pair(gateway: GatewayClient, prompt: Prompt, system: str = "") -> bool:
    """Return True if the judge scores the prompt's need above an unrelated text."""
    good, bad = await gather_or_cancel(
        *(score_rewrite(gateway, prompt, text, system) for text in (prompt.need, UNRELATED_TEXT))
    )
    return good > bad


async def _ask_judge(
    gateway: GatewayClient, prompt: Prompt, messages: list[Message], shape: dict[str, Any], role: Role
) -> dict[str, Any]:
    answer = await gateway.ask(role, messages, row=prompt.id, response_format=shape)
    judgement: dict[str, Any] = orjson.loads(answer.text)
    return judgement
