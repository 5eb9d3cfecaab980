"""A name's history: who may move it, and what shows that it was rewritten."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qinglan.errors import ConflictError, DataError
from qinglan.store.name_history import HistoryEntry, check_history, checked_name, next_entry

NAME = "fivedoctors/rewriter"
TIME = "2026-11-22T00:00:00.000+00:00"
DIGESTS = [letter * 64 for letter in "abcdef"]


def history(length: int) -> list[HistoryEntry]:
    entries: list[HistoryEntry] = []
    for number in range(length):
        expected = entries[-1].digest if entries else None
        entries.append(next_entry(NAME, entries, DIGESTS[number % 6], expected, "gate", TIME))
    return entries


@pytest.mark.slow
@given(st.data())
def test_every_change_but_of_the_newest_entry_shows(data: st.DataObject) -> None:
    entries = history(data.draw(st.integers(2, 9)))
    at = data.draw(st.integers(0, len(entries) - 2))
    what = data.draw(st.sampled_from(["change", "remove", "swap"]))

    if what == "change":
        entries[at] = entries[at].model_copy(update={"digest": "9" * 64})
    elif what == "remove":
        del entries[at]
    else:
        entries[at], entries[at + 1] = entries[at + 1], entries[at]

    assert check_history(entries)


@pytest.mark.parametrize(
    ("length", "expected", "message"),
    [
        (0, DIGESTS[0], "there is no such name"),
        (1, None, f"expected to be new, but gate pointed it at {DIGESTS[0]}"),
        (2, DIGESTS[0], f"expected at {DIGESTS[0]}, but gate pointed it at {DIGESTS[1]}"),
    ],
)
def test_a_name_moves_only_from_where_the_mover_thinks_it_is(length: int, expected: str | None, message: str) -> None:
    with pytest.raises(ConflictError, match=message):
        next_entry(NAME, history(length), DIGESTS[5], expected, "gate", TIME)


@pytest.mark.parametrize("by", ["", "a\nb", "x" * 201])
def test_the_author_of_a_history_entry_must_fit_on_one_line(by: str) -> None:
    with pytest.raises(DataError, match="by: "):
        next_entry(NAME, [], DIGESTS[0], None, by, TIME)


def test_an_entry_is_read_as_it_was_written_or_not_at_all() -> None:
    entry = history(2)[1]

    assert HistoryEntry.parse(entry.dump(), "entry") == entry
    for changed in (entry.dump() + b" ", entry.dump().replace(b":", b": "), b"{}", b"\xff"):
        with pytest.raises(DataError, match="by other means than ours"):
            HistoryEntry.parse(changed, "entry")


@given(st.text(alphabet="ab/.-_A\\\n ~\x00", max_size=12))
def test_a_name_is_two_plain_words(name: str) -> None:
    try:
        parts = checked_name(name).split("/")
    except DataError:
        return

    assert len(parts) == 2
    assert all(part[0].isalnum() and set(part) <= set("ab.-_") for part in parts)
