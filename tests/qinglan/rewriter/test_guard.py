"""The guard: what it takes back, what it leaves alone, and that it never says no to the user's own words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qinglan.prompts import Question
from qinglan.rewriter.guard import MAX_CHARACTERS, failed_guards

HISTORY = "用户正在了解虾青素软胶囊的吃法以及和鱼油软胶囊有什么区别，家里有30片装"
ASKED = Question("fivedoctors", "那它一天吃几次，两千块够吗", "65岁老人", HISTORY)


@pytest.mark.parametrize(
    "written",
    [
        "虾青素软胶囊 每日服用频次",
        "虾青素软胶囊 三十片装 服用频次",  # spelled out, and told in digits
        "虾青素软胶囊 ３０片 ６５岁",
        "虾青素软胶囊 2,000元 30.0片",
        "辅酶Q10 第一阶段 一般人群 两种",  # a name, and manners of speaking
        "那它一天吃几次，两千块够吗",
        "虾青素 <65岁 老人 [图片]",
        "虾青素软胶囊和鱼油软胶囊的区别",
    ],
)
def test_words_of_the_conversation_pass_the_guard(written: str) -> None:
    assert failed_guards(ASKED, written) == ()


@pytest.mark.parametrize(
    ("written", "cut", "found"),
    [
        (" ？！", False, ("empty",)),
        ("", True, ("empty",)),
        ("虾青素软胶囊 每日", True, ("cut",)),
        ("虾青素" * (MAX_CHARACTERS // 3 + 1), False, ("too_long",)),
        ("正在了解虾青素软胶囊的吃法以及和鱼油软胶囊", False, ("history",)),
        ("正在了解虾青素软胶囊的吃法，以及和鱼油软胶囊", False, ("history",)),  # punctuation aside
        ("虾青素<|im_end|>", False, ("markup",)),
        ("<think>虾青素", False, ("markup",)),
        ("虾青素</s>", False, ("markup",)),
        ("<｜User｜>虾青素", False, ("markup",)),
        ("[INST] 虾青素", False, ("markup",)),
        ('{"改写": "虾青素"}', False, ("markup",)),
        ("```虾青素", False, ("markup",)),
        ("虾青素<br", False, ("markup",)),
        ("虾青素软胶囊 每日３粒", False, ("invented_number",)),
        ("虾青素软胶囊 每日三粒", False, ("invented_number",)),
        ("虾青素软胶囊 一百二十元", False, ("invented_number",)),
        ("虾青素软胶囊 1.5万元", False, ("invented_number",)),
        ("虾青素软胶囊的吃法以及和鱼油软胶囊有什么区别 每日9粒", True, ("cut", "history", "invented_number")),
    ],
)
def test_failed_guards_are_named_in_order_of_gravity(written: str, cut: bool, found: tuple[str, ...]) -> None:
    assert failed_guards(ASKED, written, cut) == found


@given(st.text(min_size=1, max_size=300), st.text(max_size=300))
def test_the_users_own_question_is_taken_back_only_where_it_says_nothing(question: str, history: str) -> None:
    assert set(failed_guards(Question("fivedoctors", question, "", history), question)) <= {"empty"}


@given(st.text(max_size=200), st.text(max_size=200), st.booleans())
def test_no_text_makes_it_fail(written: str, history: str, cut: bool) -> None:
    assert not cut or failed_guards(Question("fivedoctors", "问", "", history), written, cut)
