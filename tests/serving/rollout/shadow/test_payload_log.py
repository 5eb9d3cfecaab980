"""A shadow reads each object of a payload log once, of this hour and the one before."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from qinglan.store import Store, open_store
from serving.rollout.shadow.payload_log import PayloadLogReader

SECOND, HOUR = timedelta(seconds=1), timedelta(hours=1)
NOON, MIDNIGHT = datetime(2026, 11, 22, 12, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)


def log_in(folder: Path) -> Store:
    return open_store(str(folder)).prepare()


def written(store: Store, *when: datetime) -> list[str]:
    """Named as the rewriter names them."""
    keys = [f"payloads/{at:%Y-%m-%d}/{at:%H%M%S}-0a1b2c3d-000001.jsonl" for at in when]
    assert all(store.backend.create(key, b"{}\n") for key in keys)
    return keys


def test_over_the_turn_of_the_hour_and_of_the_year_nothing_is_lost_or_read_twice(tmp_path: Path) -> None:
    for number, turn in enumerate((NOON, MIDNIGHT)):
        store = log_in(tmp_path / str(number))
        reader = PayloadLogReader(store)
        written(store, turn - 60 * SECOND)
        assert reader.new_keys(turn - 30 * SECOND) == [], "what lies there at the first look is past"

        observed = written(store, turn - 20 * SECOND)
        assert reader.new_keys(turn - 10 * SECOND) == observed
        observed = written(store, turn - SECOND, turn + SECOND)
        assert reader.new_keys(turn + 2 * SECOND) == observed, "what was written before the turn comes first"
        assert reader.new_keys(turn + 12 * SECOND) == []


def test_a_late_payload_object_is_read_in_the_following_hour(tmp_path: Path) -> None:
    store = log_in(tmp_path)
    reader = PayloadLogReader(store)
    reader.new_keys(MIDNIGHT + SECOND)
    late = written(store, MIDNIGHT - 3 * SECOND)

    assert reader.new_keys(MIDNIGHT + 59 * 60 * SECOND) == late
    assert reader.new_keys(MIDNIGHT + HOUR) == []


def test_no_other_hours_are_listed(tmp_path: Path) -> None:
    """Not of this day, and not the same ones of the day before."""
    store = log_in(tmp_path)
    reader = PayloadLogReader(store)
    reader.new_keys(NOON)
    written(store, NOON - 2 * HOUR, NOON + HOUR, NOON - 24 * HOUR, NOON - 25 * HOUR)

    assert reader.new_keys(NOON + SECOND) == []
