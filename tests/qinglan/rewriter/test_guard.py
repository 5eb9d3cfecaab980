"""The guard: what it takes back, what it leaves alone, and that it never says no to the user's own words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.human_rewrites import Case, own_cases
from qinglan.prompts import Question
from qinglan.rewriter.guard import MAX_CHARACTERS, failed_guards

HISTORY = "用户正在了解虾青素软胶囊的吃法以及和鱼油软胶囊有什么区别，家里有30片装"
QUESTION = Question("fivedoctors", "那它一天吃几次，两千块够吗", "65岁老人", HISTORY)


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
    assert failed_guards(QUESTION, written) == ()


@pytest.mark.parametrize(
    ("written", "cut", "guards"),
    [
        (" ？！", False, ("empty",)),
        ("", True, ("empty",)),
        ("\u200b\ufeff", False, ("empty",)),
        ("\u115f", False, ("empty",)),  # a letter of Hangul that nobody sees
        ("虾青素软胶囊 每日", True, ("cut",)),
        ("虾青素" * (MAX_CHARACTERS // 3 + 1), False, ("too_long",)),
        ("正在了解虾青素软胶囊的吃法以及和鱼油软胶囊", False, ("history",)),
        ("虾青素<|im_end|>", False, ("markup",)),
        ("<think>虾青素", False, ("markup",)),
        ("<｜User｜>虾青素", False, ("markup",)),
        ("[INST] 虾青素", False, ("markup",)),
        ('{"改写": "虾青素"}', False, ("markup",)),
        ("虾青素<br", False, ("markup",)),
        ("虾青素软胶囊 每日三粒", False, ("invented_number",)),
        ("虾青素软胶囊 一百二十元", False, ("invented_number",)),
        ("虾青素软胶囊的吃法以及和鱼油软胶囊有什么区别 每日9粒", True, ("cut", "history", "invented_number")),
    ],
)
def test_failed_guards_are_named_in_order_of_gravity(written: str, cut: bool, guards: tuple[str, ...]) -> None:
    assert failed_guards(QUESTION, written, cut) == guards


@pytest.mark.parametrize(
    "number",
    [
        "三百 毫克",
        "三百mg",
        "伍佰毫克",
        "Ⅲ粒",
        "一打",
        "百分之八十",
        "three hundred mg",
    ],
)
def test_a_number_that_nobody_told_is_found_in_every_writing(number: str) -> None:
    question = Question("fivedoctors", "虾青素怎么吃", "老人", "正在了解虾青素")
    explained = question._replace(history_summary=f"正在了解虾青素，{number}")

    assert failed_guards(question, f"虾青素 每日 {number}") == ("invented_number",)
    assert failed_guards(explained, f"虾青素 每日 {number}") == ()


ENGLISH_HISTORY = (
    "The user bought astaxanthin softgels and fish oil capsules for her mother, aged sixty-five, who takes warfarin "
    "every morning. The assistant explained that the softgels are stored in a cool and dry place, and that each "
    "bottle holds 60 softgels. The user asked how long one bottle lasts and whether the parcel can be returned."
)
ENGLISH_REWRITES = [
    ("How many a day?", "How many astaxanthin softgels should be taken a day?"),
    ("Can she take them together?", "Can astaxanthin softgels and fish oil be taken together with warfarin?"),
    ("Is it ok for kids?", "Are fish oil capsules suitable for children, and what is the recommended dose?"),
    ("she forgot yesterday", "What should someone do after missing a day of astaxanthin softgels?"),
    ("expired last month", "Is it safe to take fish oil capsules that expired one month ago?"),
    ("60 is enough?", "Is a bottle of sixty astaxanthin softgels enough for two months at one softgel a day?"),
]


@pytest.mark.parametrize(("question", "written"), ENGLISH_REWRITES)
def test_a_faithful_english_rewrite_passes(question: str, written: str) -> None:
    assert failed_guards(Question("house", question, "", ENGLISH_HISTORY), written) == ()


CASES = [(name, case) for name, cases in own_cases().items() for case in cases]


@pytest.mark.parametrize(("name", "case"), CASES, ids=[case.rewrite for _, case in CASES])
def test_the_guard_refuses_the_unfaithful_rewrites_of_people_alone(name: str, case: Case) -> None:
    assert bool(failed_guards(case, case.rewrite)) is (name == "unfaithful")


CLAUSE = "the softgels are stored in a cool and dry place, and that each bottle"


def test_a_clause_of_the_history_may_stand_beside_the_question_and_a_paragraph_may_not() -> None:
    question = Question("house", "What else did he say about her mother?", "", ENGLISH_HISTORY)
    beside = f"Besides that {CLAUSE}, what else did he say about her mother?"
    alone = f"Besides that {CLAUSE}."
    paragraph = f"{ENGLISH_HISTORY[:160]}: what else did he say about her mother?"

    assert [failed_guards(question, text) for text in (beside, alone, paragraph)] == [(), ("history",), ("history",)]


@pytest.mark.slow
@given(st.text(min_size=1, max_size=300), st.text(max_size=300))
def test_the_users_own_question_is_taken_back_only_where_it_says_nothing(question: str, history: str) -> None:
    assert set(failed_guards(Question("fivedoctors", question, "", history), question)) <= {"empty"}


@given(st.text(max_size=200), st.text(max_size=200), st.booleans())
def test_no_text_makes_it_fail(written: str, history: str, cut: bool) -> None:
    assert not cut or failed_guards(Question("fivedoctors", "问", "", history), written, cut)
