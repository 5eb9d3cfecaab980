"""Write a student's greedy rewrite and k samples of each prompt, with the engine that the evaluation uses."""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from components.evaluation.rewriter.config import EvaluateConfig
from components.evaluation.rewriter.engine_inference import (
    explained_outages,
    fitted_prompts,
    servable_card,
    student_engine,
    write_all,
)
from components.evaluation.rewriter.student_inference import uses_vllm
from qinglan.prompts import Message
from qinglan.rewriter.engine import completion_request
from qinglan.rewriter.model import Student
from qinglan.terminal.progress import progress

NAME = "headroom"


class SampledRewrites(NamedTuple):
    """Rewrites in the order of the prompts."""

    greedy: list[str]
    samples: list[list[str]]
    seconds: float


def sample_rewrites(
    model: Path, prompts: Sequence[list[Message]], count: int, seed: int, config: EvaluateConfig
) -> SampledRewrites:
    """Write one greedy rewrite of each prompt, and `count` rewrites sampled at temperature 1."""
    write = _with_engine if uses_vllm(config) else _in_process
    started = time.perf_counter()
    greedy, samples = write(model, prompts, count, seed, config)
    return SampledRewrites(greedy, samples, time.perf_counter() - started)


def _in_process(
    model: Path, prompts: Sequence[list[Message]], count: int, seed: int, config: EvaluateConfig
) -> tuple[list[str], list[list[str]]]:
    student = Student.load(model)
    size = max(1, config.batch // count)  # about `batch` rewrites at once, as in the evaluation
    greedy: list[str] = []
    samples: list[list[str]] = []
    with progress(NAME, len(prompts)) as tick:
        for start in range(0, len(prompts), size):
            batch = prompts[start : start + size]
            greedy += [rewrite.text for rewrite in student.write_messages(batch)]
            samples += student.sample(batch, count, seed)
            for _ in batch:
                tick()
    return greedy, samples


def _with_engine(
    model: Path, prompts: Sequence[list[Message]], count: int, seed: int, config: EvaluateConfig
) -> tuple[list[str], list[list[str]]]:
    card = servable_card(model)
    with student_engine(model, config) as engine, explained_outages(engine, NAME):
        fitted = [prompt.text for prompt in fitted_prompts(model, card, prompts, engine.url)]
        requests = engine_requests(fitted, count, seed, card.max_new_tokens)
        texts = asyncio.run(write_all(NAME, engine.url, requests, config.batch)).texts
    each = count + 1
    rewrites = [texts[start : start + each] for start in range(0, len(texts), each)]
    return [row[0] for row in rewrites], [row[1:] for row in rewrites]


def engine_requests(prompts: Sequence[str], count: int, seed: int, most: int) -> list[dict[str, Any]]:
    """Return the completion requests of all prompts: for each prompt a greedy request, then `count` sampled requests,
    each with its own seed."""
    return [
        completion_request(NAME, prompt, most) | ({"temperature": 1.0, "seed": seed + number} if number else {})
        for prompt in prompts
        for number in range(count + 1)
    ]
