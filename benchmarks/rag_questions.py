"""Questions to the RAG service without a rewrite, and who wrote the queries that it searched."""

import random
from collections import Counter
from collections.abc import Sequence

import orjson

from benchmarks.open_loop import TimedAnswer
from benchmarks.rag import WORDS


def make_questions(count: int, seed: int = 0) -> tuple[list[str], list[str]]:
    """So many different questions; and as many of which a few are popular (Zipf's law)."""
    rng = random.Random(seed)
    new = ["".join(rng.choices(WORDS, k=4)) for _ in range(count)]
    return new, rng.choices(new, weights=[1 / rank for rank in range(1, count + 1)], k=count)


def request_bodies(questions: Sequence[str], tenant: str) -> list[bytes]:
    return [orjson.dumps({"query": question, "tenant_id": tenant, "score_threshold": 0.0}) for question in questions]


def count_writers(answers: Sequence[TimedAnswer]) -> Counter[str]:
    """Number of queries that the model wrote ("model"), and of plain questions, by the reason why they were
    searched."""
    failed = [answer for answer in answers if answer.status != 200]
    if failed:
        raise RuntimeError(f"{len(failed)} of {len(answers)} failed; the first: {failed[0]}")
    bodies = [orjson.loads(answer.content)["data"] for answer in answers]
    return Counter(data["fallback_reason"] or data["rewriter"] for data in bodies)
