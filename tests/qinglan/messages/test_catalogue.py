"""A text is matched to its template; what it quotes stays as it is."""

import time
from pathlib import Path

import pytest

from qinglan.errors import DataError
from qinglan.messages import reads_chinese
from qinglan.messages.catalogue import Catalogue

ENTRIES = {
    "no such file": "没有这个文件",
    "{0}: {1:n} rows hold no question.": "{0}：{1} 行没有问题。",
    "{0}: cannot be read, {1}.": "{0}：无法读取，{1:t}。",
    "The gate holds: {0}": "闸门暂缓：{0:t}",
    "Give more rows.": "请补充更多行。",
    "Too few labels.": "标签太少。",
    "by {0}": "由 {0}",
    "{0} wins, and {1} loses.": "{1} 输了，{0} 赢了。",
    "{0:n} cards, in one machine": "一台机器里的 {0} 张卡",
    "{0} and {1}": "{0} 和 {1}",
    "Missing: {0}.": "还缺：{0:t}。",
    "{0} of {1} {2}": "{1} 中有 {0} {2:t}",
    "{0} accepted": "{0} 行被接受",
}


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return Catalogue(ENTRIES)


@pytest.mark.parametrize(
    ("text", "translation"),
    [
        ("no such file", "没有这个文件"),
        ("/a b: 1,234 rows hold no question.", "/a b：1,234 行没有问题。"),
        ("- Give more rows.", "- 请补充更多行。"),
        ("  [sft] Give more rows.", "  [sft] 请补充更多行。"),
        ("/a: cannot be read, no such file.", "/a：无法读取，没有这个文件。"),
        ("RL wins, and SFT loses.", "SFT 输了，RL 赢了。"),
        ("a wins, and b wins, and c loses.", "b wins, and c 输了，a 赢了。"),
        (
            "The gate holds: Too few labels. Something new. Give more rows.",
            "闸门暂缓：标签太少。Something new. 请补充更多行。",
        ),
        ("Missing: 2 cards, in one machine, no such file.", "还缺：一台机器里的 2 张卡、没有这个文件。"),
        ("Missing: ppo, sft and evaluate.", "还缺：ppo、sft 和 evaluate。"),
        ("Missing: no such file, what a user wrote.", "还缺：no such file, what a user wrote。"),
        ("3 of 4 rows", "4 中有 3 rows"),
    ],
)
def test_a_text_is_translated_with_its_parts(catalogue: Catalogue, text: str, translation: str) -> None:
    assert catalogue.translate(text) == translation


@pytest.mark.parametrize(
    "text",
    [
        "", "by ", "nothing that is known", "by whom it was made", "x: many rows hold no question.",
        "Seed of the faults.", "validate  accepted",
    ],
)  # fmt: skip
def test_a_text_that_means_something_else_is_left_alone(catalogue: Catalogue, text: str) -> None:
    assert catalogue.translate(text) == text


@pytest.mark.parametrize("words", ["no such file", "Give more rows.", "The gate holds: Too few labels.", "{1} {0:t}"])
def test_a_users_words_are_never_taken_for_a_message(catalogue: Catalogue, words: str) -> None:
    assert catalogue.translate(f"{words}: 3 rows hold no question.") == f"{words}：3 行没有问题。"


def test_a_hostile_text_takes_no_longer_than_its_length(catalogue: Catalogue) -> None:
    started = time.process_time()
    catalogue.translate("x wins, and " * 30_000)
    catalogue.translate("The gate holds: " + "Too few labels. " * 30_000)

    assert time.process_time() - started < 5


@pytest.mark.parametrize(
    ("environment", "chinese"),
    [
        ({}, False),
        ({"QINGLAN_LANG": "zh"}, True),
        ({"QINGLAN_LANG": "en", "LANG": "zh_CN.UTF-8"}, False),
        ({"LANG": "zh_CN.UTF-8"}, True),
        ({"LANG": "zh_CN.UTF-8", "LC_ALL": "C.UTF-8"}, False),
        ({"LC_MESSAGES": "zh_TW.UTF-8", "LANG": "en_US.UTF-8"}, True),
    ],
)
def test_the_language_is_the_variables_or_else_the_locales(environment: dict[str, str], chinese: bool) -> None:
    assert reads_chinese(environment) is chinese


def test_a_catalogue_is_read_from_po_files(tmp_path: Path) -> None:
    file = tmp_path / "zh.po"
    file.write_text(
        'msgid ""\nmsgstr ""\n"Language: zh\\n"\n\n#. a.py\nmsgid "one "\n"two"\nmsgstr "一\\"二"\n', "utf-8"
    )

    assert Catalogue.read(file).entries == {"one two": '一"二'}


def test_a_broken_po_file_is_named_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "zh.po"
    file.write_text('msgid "a"\nmsgstr b\n', "utf-8")

    with pytest.raises(DataError, match=r"zh\.po:2"):
        Catalogue.read(file)
