"""A student's samples: the same for the same seed whatever else is in the batch, beside its greedy rewrites."""

from pathlib import Path

import pytest

from components.evaluation.rewriter.config import EvaluateConfig
from components.evaluation.rewriter.sample_rewrites import engine_requests, sample_rewrites
from qinglan.prompts import Question
from qinglan.rewriter.model import Student
from tests.models.tiny_rewriter import TAUGHT, taught_model

K, SEED = 8, 3


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return taught_model(tmp_path_factory.mktemp("taught") / "model")


@pytest.fixture(scope="module")
def student(model: Path) -> Student:
    return Student.load(model)


QUESTIONS = [Question("fivedoctors", question) for question in TAUGHT]


def test_greedy_rewrites_come_with_k_samples_of_each_prompt(model: Path, student: Student) -> None:
    prompts = [student.messages(question) for question in QUESTIONS]

    written = sample_rewrites(model, prompts, K, SEED, EvaluateConfig(batch=2 * K))

    assert written.greedy == [rewrite.text for rewrite in student.write(QUESTIONS)]
    assert [len(texts) for texts in written.samples] == [K] * len(QUESTIONS)
    assert written.seconds > 0


@pytest.mark.slow
def test_samples_are_the_seeds_and_no_matter_of_the_batch(student: Student) -> None:
    prompts = [student.messages(question) for question in QUESTIONS]

    together = student.sample(prompts, K, SEED, temperature=3.0)
    alone = [student.sample([prompt], K, SEED, temperature=3.0)[0] for prompt in prompts]

    assert together == alone
    assert together != student.sample(prompts, K, SEED + 1, temperature=3.0)
    assert max(len(set(texts)) for texts in together) > 1


def test_an_engine_is_asked_for_the_greedy_completion_and_for_samples_with_seeds_of_their_own() -> None:
    requests = engine_requests(["one", "two"], 3, seed=5, most=20)

    assert [request["prompt"] for request in requests] == ["one"] * 4 + ["two"] * 4
    assert [request["temperature"] for request in requests[:4]] == [0, 1.0, 1.0, 1.0]
    assert "seed" not in requests[0]
    assert len({request["seed"] for request in requests[1:4]}) == 3
    assert {request["max_tokens"] for request in requests} == {20}
