"""A rewrite that many different questions got is counted; one that a few got may be right."""

import pytest

from components.data.generate.shared_rewrites import SharedRewrites


@pytest.mark.parametrize(
    ("rewrites", "shared"),
    [
        ([("a", "x")], 0),
        ([(f"q{n}", "x") for n in range(4)], 0),
        ([(f"q{n}", "x") for n in range(5)], 5),
        ([("the same question", "x")] * 50, 0),
        ([(f"The  question {n % 4}", "x") for n in range(50)], 0),
        ([(f"q{n}", ["No.", " no. ", "NO."][n % 3]) for n in range(9)], 9),
        ([(f"q{n}", f"r{n}") for n in range(50)], 0),
        ([(f"q{n}", f"r{n // 5}") for n in range(50)], 50),
        ([(f"q{n}", "不便回答") for n in range(6)] + [("p", "虾青素")], 6),
    ],
)
def test_questions_that_share_their_rewrite_with_many_others(rewrites: list[tuple[str, str]], shared: int) -> None:
    counter = SharedRewrites()
    for question, rewrite in rewrites:
        counter.add(question, rewrite)

    assert counter.questions() == shared
