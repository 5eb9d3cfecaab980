"""A key is removed from what a provider answers, however it is spelled there."""

import json
import time
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qinglan.llm.providers.redaction import key_remover

KEY = "sk-Planted/0123.456+789="
SPELLED = {
    "plain": KEY,
    "JSON, every letter": "".join(f"\\u{ord(letter):04x}" for letter in KEY),
    "JSON, upper case": "".join(f"\\u{ord(letter):04X}" for letter in KEY),
    "JSON, one letter": KEY.replace("P", "\\u0050"),
    "JSON, slash": KEY.replace("/", "\\/"),
    "JSON in JSON": json.dumps(json.dumps("".join(f"\\u{ord(letter):04x}" for letter in KEY))),
    "URL": quote(KEY, safe=""),
    "URL, every letter": "".join(f"%{ord(letter):02x}" for letter in KEY),
    "HTML": "".join(f"&#{ord(letter)};" for letter in KEY),
    "HTML, hexadecimal": "".join(f"&#x{ord(letter):x};" for letter in KEY),
    "hexadecimal escapes": "".join(f"\\x{ord(letter):02x}" for letter in KEY),
}


@pytest.mark.parametrize("spelling", SPELLED)
def test_a_key_is_removed_in_every_spelling(spelling: str) -> None:
    cleaned = key_remover(KEY)(f'{{"error": "your key {SPELLED[spelling]} is wrong"}}')

    assert "[key]" in cleaned
    assert SPELLED[spelling].strip('"') not in cleaned and KEY not in cleaned


@pytest.mark.slow
@given(st.lists(st.integers(0, 3), min_size=len(KEY), max_size=len(KEY)), st.text(), st.text())
def test_no_answer_holds_the_key_after_it_is_decoded(ways: list[int], before: str, after: str) -> None:
    spell = (
        lambda letter: letter, lambda letter: f"\\u{ord(letter):04x}", lambda letter: f"\\u{ord(letter):04X}",
        lambda letter: "\\/" if letter == "/" else letter,
    )  # fmt: skip
    spelled = "".join(spell[spelling](letter) for spelling, letter in zip(ways, KEY, strict=True))
    body = f'[{json.dumps(before)}, "{spelled}", {json.dumps(after)}]'

    assert KEY not in "".join(json.loads(key_remover(KEY)(body)))


@pytest.mark.slow
@given(st.text())
def test_another_text_stays_as_it_is(text: str) -> None:
    assert key_remover(KEY)(text) == text


def test_a_short_word_is_no_key() -> None:
    assert key_remover("none")("none of these") == "none of these"


@pytest.mark.slow
def test_a_long_answer_of_backslashes_takes_no_long_work() -> None:
    """Half a megabyte: with an unbounded pattern the work would be their square."""
    text, started = "\\" * 500_000, time.process_time()

    assert key_remover("\\" + KEY)(text) == text
    assert time.process_time() - started < 10
