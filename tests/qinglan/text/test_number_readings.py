"""A rewrite may write a number of its sources in another way."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.numbers import read_pairs, score, wrong
from qinglan.text.numerals import all_numbers
from qinglan.text.quantities import numbers_without_source, quantities


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("at 7 pm", "at 19:00"), ("下午三点", "15:00"), ("十二点半", "12:30"), ("一刻钟", "15分钟"),
        ("六斤半", "6.5斤"), ("six and a half hours", "6.5 hours"), ("half of them", "50% of them"),
        ("九八年", "1998年"), ("零五年", "2005年"), ("the 1980s", "the 80s"), ("the '90s", "the 1990s"),
        ("World War II", "World War 2"), ("the third race", "the 3rd race"), ("两千三", "2300元"),
        ("一米三", "1.3米"), ("1.5k messages", "1,500 messages"), ("3.2 million", "3,200,000"), ("两打", "24个"),
    ],
)  # fmt: skip
def test_another_writing_of_a_number_has_its_source(source: str, text: str) -> None:
    assert numbers_without_source(text, (source,)) == set()
    assert numbers_without_source(text, ("a text without any",)) != set()


@pytest.mark.parametrize(("source", "text"), [("预算50", "50万"), ("3 users", "thirty users"), ("半斤", "两斤半")])
def test_another_number_has_none(source: str, text: str) -> None:
    assert numbers_without_source(text, (source,)) != set()


def test_a_name_and_a_span_of_days_are_no_number_of_two_digits() -> None:
    assert numbers_without_source("小九一天都没联系我", ("小九",)) == set()
    assert numbers_without_source("三四天能到", ("四天",)) == set()


KNOWN_ERRORS = {
    ("九五年出生", "95岁"),  # a year's two digits are a number for itself
    ("born in 1998", "98 years old"),
    ("要等多久", "等一刻钟"),  # 一 and half count nothing by themselves
    ("how much off", "half off"),
    ("in the past", "a decade ago"),
    ("利率四点二", "利率4.2"),  # without a unit 四点二 is a time
    ("a 5k run", "a 5 km run"),
    ("triple the price", "3 times the price"),
}
"""Pairs that are judged wrongly. Strike out those that a better rule gets right."""


def test_every_pair_of_numbers_is_judged_right_but_the_known_ones() -> None:
    pairs = read_pairs()

    assert {(pair.source, pair.text) for pair in wrong(pairs)} == KNOWN_ERRORS
    for language in ("zh", "en"):
        counts = [sum(pair.invented is kind for pair in pairs if pair.language == language) for kind in (True, False)]
        assert min(counts) >= 96
    assert score([pair for pair in pairs if pair.held_out]) > (200, 0.96, 0.97)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("一周吃几次", "一周7次"), ("半年一次", "半年6次"),
        ("一斤多少钱", "500元一斤"), ("half of them", "50 of them"),
        ("a quarter of users", "25 users"), ("下午三点", "15粒"), ("at 7 am", "at 19:00"), ("上午9点", "21:00"),
        ("一个月", "30片"), ("5 feet", "60 kg"), ("三成", "30元"), ("三刻钟", "45元"),
        ("跑3000米", "3公斤"), ("1500 ml", "1.5 m"),
    ],
)  # fmt: skip
def test_a_conversion_counts_with_its_unit_only(source: str, text: str) -> None:
    assert numbers_without_source(text, (source,)) != set()


HOSTILE = [
    "9", "1亿", "亿", "一", "一亿", "壹", "hundred ", "two hundred ", "1,111,", "½", "Ⅷ", "1.", "1 million ", "٣",
    "1小时", "1个半小时", "half a ", "a quarter of an hour ", "12:30 pm ", "1/2 ", "一两", "三点五毫克", "1米75 ",
    "百分之", "1一亿", "3十", "twenty ", "nineteen oh ", "point ", "quarter to ", "半年", "0/0 ", "1 in 0 ",
    "99:99 ", "9千克",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("amount", HOSTILE)
def test_amounts_without_end_take_no_long_time(amount: str) -> None:
    text = (amount * 20_000)[:20_000]
    started = time.process_time()

    assert numbers_without_source("一次7片", (text,)) in ({"7"}, set())
    assert numbers_without_source(f"1{text}", [f"1{text}"]) == set()
    assert all(len(number) < 1000 for number in all_numbers(text))
    assert all(quantity.value == quantity.value for quantity in quantities(f"{text}1"))
    assert time.process_time() - started < 5, "a second of a server's time for one question is too much by far"


@given(st.text(alphabet="半一两三十万点分之刻时个月年周天斤克千 0123456789.:/%$apmhlfndquretowi", max_size=40))
def test_no_mixture_of_amounts_makes_it_fail(text: str) -> None:
    assert numbers_without_source(text, (text,)) == set()
    assert all(quantity.value >= 0 for quantity in quantities(text))
