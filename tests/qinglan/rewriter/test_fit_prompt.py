"""A history that is too long for a student loses its oldest turns: in training as in serving."""

import copy
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qinglan.errors import DataError
from qinglan.prompts import Question, parse_user_message, student_messages
from qinglan.rewriter.card import CARD, RewriterCard, card_bytes, read_card
from qinglan.rewriter.model import StudentPrompt, fit_prompt, load_tokenizer
from qinglan.rows.chat_history import Turn, chat_lines
from tests.models.tiny_rewriter import SYSTEM, tiny_model

TURNS = [Turn("assistant" if at % 2 else "user", f"第{at}句。说完了") for at in range(40)]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return load_tokenizer(tiny_model(tmp_path_factory.mktemp("model")))


def prompt_of(tokenizer: Any, history: str, budget: int, question: str = "那它一天吃几次") -> StudentPrompt:
    return fit_prompt(tokenizer, student_messages(Question("fivedoctors", question, "老人", history), SYSTEM), budget)


def history_of(prompt: StudentPrompt) -> str:
    question, _ = parse_user_message(prompt.messages[1]["content"])
    assert (question.question, question.user_profile) == ("那它一天吃几次", "老人")
    return question.history_summary


def test_a_prompt_that_fits_is_shown_as_it_is(tokenizer: Any) -> None:
    messages = student_messages(Question("fivedoctors", "那它一天吃几次", "老人", chat_lines(TURNS[:3])), SYSTEM)
    whole = fit_prompt(tokenizer, messages, 10_000)

    exactly = fit_prompt(tokenizer, messages, whole.tokens)

    assert exactly == whole and exactly.messages == messages and not exactly.trimmed


def test_no_more_turns_are_left_out_than_must_be(tokenizer: Any) -> None:
    histories = [chat_lines(TURNS[at:]).replace("\n", " ") for at in range(40)]
    tokens = [prompt_of(tokenizer, history, 10_000).tokens for history in histories]

    for at in range(1, 40):
        prompt = prompt_of(tokenizer, histories[0], tokens[at - 1] - 1)

        assert (history_of(prompt), prompt.tokens, prompt.trimmed) == (histories[at], tokens[at], True)


@pytest.mark.slow
@given(st.text(max_size=200), st.integers(1, 200))
def test_any_history_fits_or_is_gone(tokenizer: Any, history: str, budget: int) -> None:
    prompt = prompt_of(tokenizer, history, budget)

    assert prompt.tokens <= budget or not history_of(prompt)
    assert parse_user_message(prompt.messages[1]["content"])[0].question == "那它一天吃几次"


def test_a_card_without_a_limit_has_the_bytes_of_older_cards(tmp_path: Path) -> None:
    """The digest of a base under an adapter is taken over its card."""
    assert "max_prompt_tokens" not in orjson.loads(card_bytes(RewriterCard(stage="base")))

    (tmp_path / CARD).write_bytes(card_bytes(RewriterCard(stage="ppo", max_new_tokens=20, max_prompt_tokens=128)))

    card = read_card(tmp_path)
    assert [card.prompt_tokens(context) for context in (512, 100)] == [128, 80]
    assert RewriterCard(stage="sft", max_new_tokens=20).prompt_tokens(512) == 492


@pytest.mark.parametrize(
    "template", ["{{ messages }}" * 600, "{% for m in messages %}" + "{{ m }}" * 600 + "{% endfor %}"]
)
def test_a_prompt_that_is_much_longer_than_its_conversation_is_refused(tokenizer: Any, template: str) -> None:
    tokenizer = copy.deepcopy(tokenizer)
    tokenizer.chat_template = template

    with pytest.raises(DataError, match="chat template makes"):
        prompt_of(tokenizer, "", 100)
