"""Numbers in Chinese texts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qinglan.numerals import all_numbers, canonical_number, digit_numbers, spelled_counts, spelled_value


@pytest.mark.parametrize(
    ("word", "number"),
    [
        ("三", 3), ("十", 10), ("十二", 12), ("三十", 30), ("两百", 200), ("一百零五", 105), ("一千二百三十四", 1234),
        ("一万五千", 15000), ("三亿两千万", 320_000_000), ("二〇二五", 2025), ("零", 0),
    ],
)  # fmt: skip
def test_a_spelled_number_is_read(word: str, number: int) -> None:
    assert spelled_value(word) == number


def test_numbers_in_digits_have_any_width_and_names_are_none() -> None:
    assert digit_numbers("３０粒 Q10 B12 1.5克") == {"30", "1.5"}


def test_numerals_in_idioms_are_not_counted() -> None:
    assert spelled_counts("一天三次，第一种，两种，百分之五十，三十天，七嘴八舌") == {"3", "30"}


def test_every_way_to_write_it_is_known() -> None:
    assert {"30", "15000", "1.5", "1000", "2025", "50"} <= all_numbers("三十天 1.5万 1,000元 二〇二五年 百分之五十")


@given(st.integers(min_value=0, max_value=10**9))
def test_a_number_in_digits_is_known_by_itself_and_with_leading_zeros(number: int) -> None:
    assert str(number) in all_numbers(f"共{number}元")
    assert canonical_number(f"00{number}.0") == str(number)


@given(st.text(alphabet="零〇一二两三四五六七八九十百千万亿天次粒0123456789.,", max_size=40))
def test_no_row_of_numerals_makes_it_fail(text: str) -> None:
    assert spelled_counts(text) <= all_numbers(text)
