"""Names of settings, columns and files, and quoted texts, are the same in Chinese, mark for mark."""

import re
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pipelines.lines.config import load_config
from qinglan.messages import chinese
from qinglan.messages.catalogue import SLOT, divided


def _names(values: object) -> set[str]:
    match values:
        case dict():
            return set(values) | set().union(*map(_names, values.values()))
        case list():
            return set().union(*map(_names, values))
    return set()


WORDS = sorted(
    _names(load_config("fivedoctors", "gpt", questions=Path("q"), knowledge_base=Path("k")).model_dump(mode="json"))
    | {"no", "rows"}
)
"""The names of our settings; some have a translation where they stand alone, as a word of a sentence."""

SENTENCES = (
    "Extra inputs are not permitted (given: '1')",
    "Extra inputs are not permitted (given: '1'); rows: Field required",
    "Input should be a path (given: '3')",
    "Input should be 'a', 'b' or 'c' (given: '3')",
    "Read-only file system. Choose another place, or make room.",
    "is a folder. Name the file in it.",
    "no column is called content, text; there are id, no. "
    "Rename the column that holds the passages' text to content.",
    "Permission denied. Choose another place, or make room.",
)
NAMES = st.one_of(
    st.sampled_from(WORDS),
    st.lists(st.sampled_from(WORDS), min_size=2, max_size=4).map(".".join),
    st.sampled_from(["tenants/acme/demo.yaml", "问题.xlsx", "bad.jsonl:1", "--knowledge-base 知识库.jsonl:2"]),
)
SIGNS = st.text("abc 你，。:;,.!?{}0", max_size=12)
QUOTED = st.one_of(
    SIGNS.map(
        lambda text: "{" + '"id": "' + text.replace("{", "").replace("}", "") + '", "content": "no, rows; a: b"}'
    ),
    SIGNS.map(lambda text: f"`qinglan plan {text}`"),
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=3).map(
        lambda words: f"`{', '.join(words)}: no rows. In all`"
    ),
)
QUOTING = sorted(
    text
    for text, translation in chinese().entries.items()
    if SLOT.search(text) and ":t}" not in translation and not SLOT.match(text) and len(text) > 30
)
"""Sentences that quote something: what they quote is put into the Chinese one as it is."""


@pytest.mark.slow
@given(st.lists(NAMES, min_size=1, max_size=3, unique=True), st.sampled_from(SENTENCES))
def test_the_names_before_a_sentence_stay(names: list[str], sentence: str) -> None:
    text = chinese().translate(": ".join([*names, sentence]))

    assert text.replace("：", ": ").startswith(": ".join([*names, ""])), text
    assert "no column" not in text and "should" not in text and "Choose" not in text


IN_BACKQUOTES = re.compile(r"`[^`]*\{\d[^}]*\}[^`]*`")


@pytest.mark.slow
@settings(max_examples=200)
@given(st.sampled_from(QUOTING), QUOTED)
def test_an_example_in_a_sentence_stays(template: str, example: str) -> None:
    assume("`" not in example or not IN_BACKQUOTES.search(template))  # backquotes within backquotes end these
    english = SLOT.sub(lambda slot: "3" if slot[2] == ":n" else example, template)

    assert chinese().translate(english).count(example) == english.count(example)


@pytest.mark.parametrize(
    ("text", "translation"),
    [
        ("no: Extra inputs are not permitted (given: '1')", "no：没有这个设置（输入：'1'）"),
        ("demo.yaml: rows: Extra inputs are not permitted", "demo.yaml：rows：没有这个设置"),
        (
            "a.yaml: questions: Input should be a path (given: '3'); no: Extra inputs are not permitted (given: '4')",
            "a.yaml：questions：应当是路径（输入：'3'）；no：没有这个设置（输入：'4'）",
        ),
        ('{"id": "k1", "content": "a"}: Field required.', '{"id": "k1", "content": "a"}：必填。'),
        (
            "bad.jsonl: no column is called content, text; there are id, no. Rename the column that holds the "
            "passages' text to content.",
            "bad.jsonl：没有叫 content, text 的列；现有 id, no。请把段落正文那一列改名为 content。",
        ),
        ("a.csv row 4: set aside", "a.csv 第 4 行：已搁置"),
        (
            "runs/x: prompt teacher 874df5cf2f8a: only an untrusted statement names it as an external input; "
            "and 3 more.",
            "runs/x：prompt teacher 874df5cf2f8a：只有不受信任的声明把它写成外部输入；另有 3 个。",
        ),
    ],
)
def test_settings_examples_and_columns_of_an_error_stay(text: str, translation: str) -> None:
    assert chinese().translate(text) == translation


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("a, b", ["a", "b"]),
        ("`a, b`, c", ["`a, b`", "c"]),
        ('{"a": {"b": 1, "c": 2}, "d": 3}, e', ['{"a": {"b": 1, "c": 2}, "d": 3}', "e"]),
        ("the row's, 'a, b'", ["the row's", "'a, b'"]),
        ("a ` alone, b { too", ["a ` alone", "b { too"]),
    ],
)
def test_a_text_is_not_divided_in_quotes(text: str, pieces: list[str]) -> None:
    assert divided(text, re.compile(", ")) == pieces
