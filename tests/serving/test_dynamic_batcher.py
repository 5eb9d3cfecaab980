"""Texts of several callers share a batch, and no caller waits for ever."""

import asyncio
from collections.abc import Sequence

import pytest

from serving.dynamic_batcher import DynamicBatcher


def test_a_model_that_answers_too_few_texts_is_an_error_of_each_caller() -> None:
    def answer(texts: Sequence[str]) -> Sequence[str]:
        return texts[:-1]

    async def run() -> list[object]:
        batcher = DynamicBatcher[str, str](answer, most=8)
        callers = [asyncio.create_task(batcher.ask([text])) for text in ("a", "b")]
        done, _ = await asyncio.wait(callers, timeout=60)
        return [caller.exception() if caller in done else None for caller in callers]

    errors = asyncio.run(run())

    assert all(isinstance(error, ValueError) for error in errors), errors


@pytest.mark.parametrize("most", [1, 2, 8])
def test_each_caller_gets_its_own_answers(most: int) -> None:
    async def run() -> list[list[str]]:
        batcher = DynamicBatcher[str, str](lambda texts: [text.upper() for text in texts], most=most)
        return list(await asyncio.gather(batcher.ask(["a", "b"]), batcher.ask(["c"])))

    assert asyncio.run(run()) == [["A", "B"], ["C"]]
