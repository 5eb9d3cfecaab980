"""A rewrite may write a number of its sources in another way."""

import pytest

from qinglan.number_readings import numbers_without_source


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
