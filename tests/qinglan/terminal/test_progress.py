"""The display of bytes on their way."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from qinglan.terminal.progress import bytes_line, size_of, step_progress, transfer_progress


def test_a_line_says_how_much_how_fast_and_how_long_yet() -> None:
    assert bytes_line("push", 4_000_000_000, 700_000_000, 600_000_000, 3.5) == (
        "[push] 1.3 GB / 4.0 GB, 200.0 MB/s, 14 s left, 600.0 MB were there already"
    )
    assert bytes_line("pull", 10, 0, 0, 0.0) == "[pull] 0 B / 10 B, 0 B/s"
    assert bytes_line("pull", 10, 10, 0, 2.0) == "[pull] 10 B / 10 B, 5 B/s"


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (999_960, "1.0 MB"), (16 << 20, "16.8 MB"), (3e15, "3000.0 TB")],
)
def test_sizes_are_for_people(count: float, text: str) -> None:
    assert size_of(count) == text


@pytest.mark.slow
def test_bytes_are_counted_from_any_thread(capsys: pytest.CaptureFixture[str]) -> None:
    with transfer_progress("push", 8000) as tally, ThreadPoolExecutor(8) as pool:
        for _ in range(1000):
            pool.submit(tally.add_moved, 5)
            pool.submit(tally.add_existing, 3)

    *_, last = capsys.readouterr().out.splitlines()  # on a busy machine a line every two seconds comes before it
    assert last.startswith("[push] 8.0 kB / 8.0 kB, ")
    assert last.endswith(", 3.0 kB were there already")


@pytest.mark.parametrize(
    ("rest", "lines"),
    [
        (0, ["[sft] step 1/6", "[sft] step 2/6, 40 s left", "[sft] step 6/6"]),
        (1, ["[sft] step 1/6", "[sft] step 2/6, 100 s left", "[sft] step 6/6, 60 s left"]),
        (5, ["[sft] step 1/6", "[sft] step 2/6, 340 s left", "[sft] step 6/6, 300 s left"]),
    ],
)
def test_the_time_left_is_reckoned_from_the_first_step_on_and_over_all_trainings_that_follow(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], rest: int, lines: list[str]
) -> None:
    clock = iter([100.0, 110.0, 150.0])
    monkeypatch.setattr("qinglan.terminal.progress.time.monotonic", lambda: next(clock))

    with step_progress("sft", rest) as show:
        for step in (1, 2, 6):
            show(step, 6)

    assert capsys.readouterr().out.splitlines() == lines
