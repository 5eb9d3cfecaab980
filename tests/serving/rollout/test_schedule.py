"""When which rollout is looked at."""

from serving.rollout.cluster.schedule import GAP, Schedule


class Hands:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.at = 1000.0

    def __call__(self) -> float:
        return self.at


def test_one_rollout_is_looked_at_by_one_at_a_time_and_again_where_it_changed_meanwhile() -> None:
    clock = Hands()
    schedule = Schedule(clock)
    schedule.soon("one")
    assert schedule.take(8, 0.0) == ["one"]

    schedule.soon("one")
    assert schedule.take(8, 0.0) == [], "it is being looked at"
    schedule.give_back("one", 30.0)
    clock.at += GAP
    assert schedule.take(8, 0.0) == ["one"]


def test_it_is_looked_at_again_after_its_time_and_what_ended_is_not() -> None:
    clock = Hands()
    schedule = Schedule(clock)
    for name in ("one", "two"):
        schedule.soon(name)
    assert schedule.take(8, 0.0) == ["one", "two"]
    schedule.give_back("one", 30.0)
    schedule.give_back("two", None)

    clock.at += 29.0
    assert schedule.take(8, 0.0) == []
    clock.at += 1.0
    assert schedule.take(8, 0.0) == ["one"]


def test_a_storm_of_changes_is_one_look_a_second() -> None:
    clock = Hands()
    schedule = Schedule(clock)
    looks = 0
    for _ in range(100):
        schedule.soon("one")
        for name in schedule.take(8, 0.0):
            looks += 1
            schedule.give_back(name, 30.0)
        clock.at += 0.1

    assert looks == 10


def test_who_waits_longest_is_first() -> None:
    clock = Hands()
    schedule = Schedule(clock)
    schedule.soon("late")
    clock.at -= 5
    schedule.soon("early")
    clock.at += 6

    assert schedule.take(1, 0.0) == ["early"]
