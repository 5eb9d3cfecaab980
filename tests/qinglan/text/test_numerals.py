"""Numbers in Chinese texts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qinglan.text.english_numerals import english_numbers, plain_words
from qinglan.text.numerals import all_numbers, canonical_number, spelled_value, written_numbers
from qinglan.text.quantities import numbers_without_source


@pytest.mark.parametrize(
    ("word", "number"),
    [
        ("三", 3), ("十", 10), ("十二", 12), ("三十", 30), ("两百", 200), ("一百零五", 105), ("一千二百三十四", 1234),
        ("一万五千", 15000), ("三亿两千万", 320_000_000), ("二〇二五", 2025), ("零", 0),
    ],
)  # fmt: skip
def test_a_spelled_number_is_read(word: str, number: int) -> None:
    assert spelled_value(word) == number


def test_numbers_in_digits_have_any_width_and_names_hold_none() -> None:
    assert written_numbers("３０粒 Q10 B12 omega-3 COVID-19 1.5克 2 million 1.5k") == {"30", "1.5", "2000000", "1500"}


def test_numerals_in_idioms_are_not_counted() -> None:
    assert written_numbers("一天三次，第一种，两种，百分之五十，三十天，七嘴八舌") == {"3", "30", "50"}


def test_every_way_to_write_it_is_known() -> None:
    assert {"30", "15000", "1.5", "1000", "2025", "50"} <= all_numbers("三十天 1.5万 1,000元 二〇二五年 百分之五十")


@given(st.integers(min_value=0, max_value=10**9))
def test_a_number_in_digits_is_known_by_itself_and_with_leading_zeros(number: int) -> None:
    assert str(number) in all_numbers(f"共{number}元")
    assert canonical_number(f"00{number}.0") == str(number)


@given(st.text(alphabet="零〇一二两三四五六七八九十百千万亿天次粒0123456789.,", max_size=40))
def test_no_row_of_numerals_makes_it_fail(text: str) -> None:
    assert written_numbers(text) <= all_numbers(text)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("三百 毫克", "300"), ("三百mg", "300"), ("三百 MG", "300"), ("x300mg", "300"), ("X 300 mg", "300"),
        ("伍佰毫克", "500"), ("叁粒", "3"), ("Ⅲ粒", "3"), ("ⅲ 粒", "3"), ("③粒", "3"), ("半斤", "0.5"),
        ("半片", "0.5"), ("一打", "12"), ("两打", "24"), ("3打", "36"), ("百分之五十", "50"), ("三十多片", "30"),
        ("十几片", "10"), ("半打", "6"),
        ("3百毫克", "300"), ("1.5万元", "15000"), ("每日.5克", "0.5"),
        (".1亿", "10000000"), ("貳拾粒", "20"), ("壹仟贰佰元", "1200"),
        ("٣ 粒", "3"), ("３粒", "3"), ("三 粒", "3"), ("take three capsules", "3"), ("twenty-five drops", "25"),
        ("three hundred mg", "300"), ("two thousand and five IU", "2005"), ("a dozen eggs", "12"),
        ("thrice daily", "3"), ("Three Hundred", "300"),
    ],
)  # fmt: skip
def test_a_number_is_read_in_every_way_that_people_write_it(text: str, number: str) -> None:
    assert number in written_numbers(text)
    assert number in all_numbers(text)


@pytest.mark.parametrize(
    "text",
    [
        "辅酶Q10", "维生素B12 D3滴剂", "X3车型", "方案三 天然虾青素", "收拾包装", "队伍人数", "陆续大陆",
        "一打开就坏", "万一", "一天两次", "第一种", "半导体", "多半如此", "once or twice", "the one that", "someone",
        "often", "weight", "COVID19", "omega3 fish oil",
    ],
)  # fmt: skip
def test_a_name_or_a_manner_of_speaking_is_no_number(text: str) -> None:
    assert written_numbers(text) == set()


@given(st.text(alphabet="零两三十百万壹贰拾Ⅲ③半打x .,mg毫克粒threehundred and-dozen3", max_size=40))
def test_no_mixture_of_numerals_makes_it_fail(text: str) -> None:
    assert written_numbers(text) <= all_numbers(text)


def test_the_longest_number_that_somebody_may_mean_is_read_whole() -> None:
    card = "6222" * 8

    assert written_numbers(f"卡号{card}") == {card}
    assert numbers_without_source(f"卡号{card}", [f"卡号{card[:-1]}1"]) == {card}


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("two or three hundred tablets", ["2", "300"]), ("two and three", ["2", "3"]), ("twenty five", ["25"]),
        ("nineteen ninety-eight", ["1998"]), ("twenty twenty-five", ["2025"]), ("nineteen oh five", ["1905"]),
        ("two thousand and eight", ["2008"]), ("twelve hundred", ["1200"]), ("ten fifteen", ["10", "15"]),
        ("ten sixty-six", ["1066"]), ("two point five mg", ["2.5"]), ("ninety-nine point nine", ["99.9"]),
        ("point", []), ("oh", []), ("and", []), ("hundred hundred", ["100", "100"]), ("one one", ["1", "1"]),
        ("the twenty-first century", ["21"]), ("half a dozen", ["6"]), ("a couple of days", ["2"]),
        ("one million two hundred thousand", ["1200000"]), ("someone often weighed the stones", []),
    ],
)  # fmt: skip
def test_numbers_in_english_words(text: str, numbers: list[str]) -> None:
    assert english_numbers(plain_words(text)) == numbers
