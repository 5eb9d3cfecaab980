"""When which rollout is looked at."""

from serving.rollout.cluster.schedule import GAP, Schedule


class Hands:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.at = 1000.0

    def __call__(self) -> float:
        return self.at


def test_a_rollout_is_reconciled_by_one_worker_and_again_after_a_change() -> None:
    clock = Hands()
    schedule = Schedule(clock)
    schedule.enqueue("one")
    assert schedule.take(8, 0.0) == ["one"]

    schedule.enqueue("one")
    assert schedule.take(8, 0.0) == [], "it is being looked at"
    schedule.requeue("one", 30.0)
    clock.at += GAP
    assert schedule.take(8, 0.0) == ["one"]


def test_a_rollout_is_reconciled_again_after_its_delay_and_an_ended_one_is_not() -> None:
    clock = Hands()
    schedule = Schedule(clock)
    for name in ("one", "two"):
        schedule.enqueue(name)
    assert schedule.take(8, 0.0) == ["one", "two"]
    schedule.requeue("one", 30.0)
    schedule.requeue("two", None)

    clock.at += 29.0
    assert schedule.take(8, 0.0) == []
    clock.at += 1.0
    assert schedule.take(8, 0.0) == ["one"]


def test_a_storm_of_changes_is_one_look_a_second() -> None:
    clock = Hands()
    schedule = Schedule(clock)
    looks = 0
    for _ in range(100):
        schedule.enqueue("one")
        for name in schedule.take(8, 0.0):
            looks += 1
            schedule.requeue(name, 30.0)
        clock.at += 0.1

    assert looks == 10


def test_the_rollout_that_waits_longest_is_reconciled_first() -> None:
    clock = Hands()
    schedule = Schedule(clock)
    schedule.enqueue("late")
    clock.at -= 5
    schedule.enqueue("early")
    clock.at += 6

    assert schedule.take(1, 0.0) == ["early"]
