"""Characters that are shown as codes, and characters that stay as they are."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qinglan.errors import ConfigError, DataError
from qinglan.terminal import quoted, say, say_error, say_json, visible
from tests.screens.terminal_screen import ATTACKS, faults, shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J", r"\x1b[2J"),
        ("a\nb\tc\rd\x08\x07\x00\x7f", r"a\nb\tc\rd\x08\x07\x00\x7f"),
        ("\x85\x90\x9b\x9c\x9d", r"\x85\x90\x9b\x9c\x9d"),
        ("\u202a\u202e\u2066\u2069\u200e\u200f\u061c", r"\u202a\u202e\u2066\u2069\u200e\u200f\u061c"),
        ("10\u200b7a\u200c\u200d\u2060\ufeff\u00ad", r"10\u200b7a\u200c\u200d\u2060\ufeff\xad"),
        ("\U000e0001\U000e0041\U000e007f", r"\U000e0001\U000e0041\U000e007f"),
        ("a\ufe0f\ufe00\U000e0100", r"a\ufe0f\ufe00\U000e0100"),
        ("❤\ufe0f\ufe0f", "❤\ufe0f" + r"\ufe0f"),
        ("\u3164\u115f\u1160\uffa0\u034f\u180e", r"\u3164\u115f\u1160\uffa0\u034f\u180e"),
        ("\ud800\udc9b\ue000\U0010ffff", r"\ud800\udc9b\ue000\U0010ffff"),
        ("👨\u200d👩", r"👨\u200d👩"),
    ],
)
def test_invisible_characters_are_shown_as_codes(text: str, shown: str) -> None:
    assert visible(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "",
        "虾青素，一天一粒？　（随餐）",
        "👩🏽 ❤️ ☺️ 🇨🇳 🀄",
        "e\u0301 ñ क्षि ไทย",
        "עברית العربية",
    ],
)
def test_readable_text_is_shown_unchanged(text: str) -> None:
    assert visible(text) == text


@given(st.text())
def test_a_text_stays_on_its_line_and_shows_itself_once(text: str) -> None:
    once = visible(text)

    assert once.splitlines() == [once] * bool(once)
    assert visible(once) == once


@pytest.mark.slow
@given(st.dictionaries(st.text(), st.text() | st.none() | st.floats(allow_nan=False)))
def test_json_reads_back_as_it_was(value: dict[str, object]) -> None:
    printed = _printed(value)

    assert json.loads(printed) == value
    assert printed.splitlines() == [printed.removesuffix("\n")]


def _printed(value: object) -> str:
    import io

    to = io.StringIO()
    say_json(value, to)
    return to.getvalue()


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_an_attack_leaves_the_lines_around_it_as_they_are(attack: str, capsys: pytest.CaptureFixture[str]) -> None:
    say("✗ ALTERED", attack, "the end")

    screen = shown(0, capsys.readouterr().out.replace("\n", "\r\n").encode())

    assert faults(screen) == []
    assert (screen.lines[0], screen.lines[2], any(screen.lines[3:])) == ("✗ ALTERED", "the end", False)


def test_an_error_has_the_lines_that_it_was_raised_with(capsys: pytest.CaptureFixture[str]) -> None:
    error = ConfigError("a.yaml:\n✓ intact", "Mend it.")

    say_error(error, "qinglan")

    assert capsys.readouterr().err == "qinglan: a.yaml:\\n✓ intact\nMend it.\n"
    assert str(error) == "a.yaml:\n✓ intact\nMend it."


def test_a_log_is_quoted_line_by_line() -> None:
    assert quoted("one\n✓ two\r\x1b[2Jthree\u2028four\tfive") == [
        "  | one", "  | ✓ two", r"  | \x1b[2Jthree", "  | four    five"
    ]  # fmt: skip


@pytest.mark.usefixtures("in_chinese")
def test_a_command_prints_in_the_persons_language(capsys: pytest.CaptureFixture[str]) -> None:
    say("- a.csv: no such file. Give the filled blind sample.", "something else\x1b[2J")
    say_error(DataError("a.csv: no such file. Give the filled blind sample.", "  | no such file"), "qinglan")

    printed = capsys.readouterr()
    assert printed.out == "- a.csv：没有这个文件。请给填好的盲评样本。\nsomething else\\x1b[2J\n"
    assert printed.err == "qinglan: a.csv：没有这个文件。请给填好的盲评样本。\n  | no such file\n"


def test_a_process_that_writes_a_log_prints_english(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QINGLAN_LANG", "zh")
    say("a.csv: no such file. Give the filled blind sample.")

    assert capsys.readouterr().out == "a.csv: no such file. Give the filled blind sample.\n"
