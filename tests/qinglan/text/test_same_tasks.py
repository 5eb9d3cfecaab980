"""A test question is seen however its history, its characters or its politeness are told; another task is not."""

import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qinglan.text.near_duplicates import ContainmentIndex, question_key, shingles
from qinglan.text.same_tasks import TaskIndex, plain_question

HISTORY = "客服已介绍虾青素软胶囊，用户说自己四十五岁，久坐熬夜，上一轮问的是食用方法指引"
BOILERPLATE = "欢迎光临本店，很高兴为您服务。本店所有商品支持七天无理由退换。活动期间满三百减四十，详询客服。"
PIECES = "那它一天吃几次"
COMPLETE = "虾青素软胶囊一天要吃几次才有效"
ENGLISH = "how often should i take the astaxanthin capsules"

SAME_TASK = [
    ("word for word", PIECES, HISTORY),
    ("three lines of boilerplate before the history", PIECES, BOILERPLATE + HISTORY),
    ("three lines of boilerplate behind it", PIECES, HISTORY + BOILERPLATE),
    ("boilerplate around it", PIECES, BOILERPLATE + HISTORY + BOILERPLATE),
    ("boilerplate in its middle", PIECES, HISTORY[:20] + BOILERPLATE + HISTORY[20:]),
    ("ten times the boilerplate", PIECES, BOILERPLATE * 10 + HISTORY),
    ("older turns before it", PIECES, "用户先问了发货时间和快递公司，客服说四十八小时内发出。" + HISTORY),
    ("a part of its history", PIECES, HISTORY[:28]),
    (
        "traditional characters",
        "那它一天吃幾次",
        "客服已介紹蝦青素軟膠囊，用戶說自己四十五歲，久坐熬夜，上一輪問的是食用方法指引",
    ),
    ("the question in traditional characters", "那它一天吃幾次", HISTORY),
    ("the history in traditional characters", PIECES, HISTORY.replace("虾", "蝦").replace("软胶", "軟膠")),
    ("full-width and punctuation", "那它，一天吃几次？？", " " + HISTORY + "。。。"),
    ("traditional characters and boilerplate", "那它一天吃幾次", BOILERPLATE + HISTORY.replace("虾", "蝦")),
    ("the question without its history", PIECES, ""),
    ("politeness before the question", "您好，请问一下，那它一天吃几次呢", HISTORY),
    ("politeness and no history", "请问那它一天吃几次啊，谢谢", ""),
    ("synonyms", "那它每天服用多少次", HISTORY),
    ("synonyms and boilerplate", "那它每日食用几次", BOILERPLATE + HISTORY),
]
COMPLETELY = [
    ("the complete question after another history", COMPLETE, "客服已介绍鱼油，用户问了发货时间"),
    ("the complete question after boilerplate alone", COMPLETE, BOILERPLATE),
    ("the complete question alone", COMPLETE, ""),
    ("the complete question in traditional characters", "蝦青素軟膠囊一天要吃幾次才有效", BOILERPLATE),
    ("the complete question with synonyms", "虾青素软胶囊每天要服用多少次才有效", "另一段完全不同的对话"),
    ("the complete question with politeness", "亲，请问虾青素软胶囊一天要吃几次才有效呢？谢谢", "另一段对话"),
    ("the complete question within a longer one", COMPLETE + "，我爸爸血压有点高", "另一段对话"),
]
OTHER = [
    ("another product in the history", PIECES, HISTORY.replace("虾青素软胶囊", "深海鱼油滴剂")),
    ("another history", PIECES, "客服已介绍鱼油软胶囊，用户问了快递"),
    ("another question", "那它保质期是多久", HISTORY),
    ("another question without a history", "那它保质期是多久", ""),
    ("another question after boilerplate", "那它孕妇能吃吗", BOILERPLATE + HISTORY),
]
OTHER_COMPLETELY = [
    ("another product in a complete question", "维生素软胶囊一天要吃几次才有效", ""),
    ("another product and another history", "深海鱼油滴剂一天要吃几次才有效", "另一段对话"),
    ("another property of the product", "虾青素软胶囊的保质期说明在哪里看", ""),
]


@pytest.mark.parametrize(("variant", "question", "history"), SAME_TASK, ids=[row[0] for row in SAME_TASK])
def test_a_test_question_in_pieces_counts_as_seen(variant: str, question: str, history: str) -> None:
    test, row = question_key(PIECES, HISTORY), question_key(question, history)

    assert TaskIndex([test], 0.8).alike(row) == [test]
    assert TaskIndex([row], 0.8).alike(test) == [row], "the other way round too"


@pytest.mark.parametrize(("variant", "question", "history"), COMPLETELY, ids=[row[0] for row in COMPLETELY])
def test_a_complete_test_question_counts_as_seen_after_any_history(variant: str, question: str, history: str) -> None:
    test = question_key(COMPLETE, HISTORY)

    assert TaskIndex([test], 0.8, {test}).alike(question_key(question, history)) == [test]


@pytest.mark.parametrize(("variant", "question", "history"), OTHER, ids=[row[0] for row in OTHER])
def test_another_task_is_not_seen(variant: str, question: str, history: str) -> None:
    assert TaskIndex([question_key(PIECES, HISTORY)], 0.8).alike(question_key(question, history)) == []


@pytest.mark.parametrize(
    ("variant", "question", "history"), OTHER_COMPLETELY, ids=[row[0] for row in OTHER_COMPLETELY]
)
def test_another_complete_question_is_not_seen(variant: str, question: str, history: str) -> None:
    test = question_key(COMPLETE, HISTORY)

    assert TaskIndex([test], 0.8, {test}).alike(question_key(question, history)) == []


def test_english_questions_are_compared_by_the_same_rules() -> None:
    test = question_key(ENGLISH, "the user is forty five")

    for question, history in [
        (f"Hello, could you tell me {ENGLISH}, please? Thanks!", ""),
        (
            ENGLISH.upper(),
            "Welcome to our shop. All goods can be returned within seven days. The user is forty-five.",
        ),
    ]:
        assert TaskIndex([test], 0.8).alike(question_key(question, history)) == [test]
    assert TaskIndex([test], 0.8).alike(question_key("how long do the astaxanthin capsules keep", "")) == []


@pytest.mark.parametrize(("question", "plain"), [("您好", "您好"), ("请问一下吗", "请问一下吗"), ("怎样", "怎么")])
def test_a_question_of_politeness_alone_stays_one(question: str, plain: str) -> None:
    assert plain_question(question) == plain


few_signs = st.text(st.sampled_from("虾青素鱼油吃"), max_size=25)
longer = st.text(st.sampled_from("一二三四五六七八九十"), min_size=20, max_size=60)


@pytest.mark.slow
@given(st.lists(st.one_of(few_signs, longer), max_size=10), st.sampled_from([0.5, 0.8, 0.9, 1.0]), st.randoms())
def test_the_search_finds_every_text_that_holds_another(
    texts: list[str], threshold: float, luck: random.Random
) -> None:
    index = ContainmentIndex(texts, threshold)
    parts = [text[luck.randint(0, 5) : len(text) - luck.randint(0, 5)] for text in texts]
    wider = [f"{luck.choice(texts)}{text}{luck.choice(texts)}" for text in texts]

    for text in (*texts, *parts, *wider, "变"):
        pieces = shingles(text)
        by_hand = [
            at
            for at, known in enumerate(index.texts)
            if len(pieces & shingles(known)) >= threshold * min(len(pieces), len(shingles(known))) - 1e-9
        ]
        assert index.related(text) == by_hand


def test_nothing_known_is_seen_in_nothing() -> None:
    assert TaskIndex([], 0.8).alike(question_key(PIECES, HISTORY)) == []
    assert ContainmentIndex([], 0.8).related("虾青素") == []


@pytest.mark.slow
def test_ten_thousand_tasks_and_thirty_thousand_rows_take_seconds() -> None:
    draw = random.Random(0)
    names = ["".join(draw.choices("甲乙丙丁戊己庚辛壬癸子丑寅卯辰巳", k=4)) for _ in range(400)]
    asks = ["".join(draw.choices("用退换存放次钱保质期孕妇", k=7)) for _ in range(300)]

    def row() -> str:
        return f"{draw.choice(asks)}|客服已介绍{draw.choice(names)}软胶囊已解答{draw.choice(asks)}来访目的选购"

    started = time.process_time()
    known = TaskIndex([row() for _ in range(10_000)], 0.8)
    result = sum(len(known.alike(row())) for _ in range(30_000))

    assert result > 0
    assert time.process_time() - started < 90, "each with each would take an hour"
