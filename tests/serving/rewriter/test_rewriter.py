"""The served student: KServe's protocol over a real socket, answers by the code that evaluation uses."""

import logging
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import httpx
import orjson
import pytest

from qinglan.errors import DataError
from qinglan.rewriter import Student
from serving.kserving import in_a_line
from serving.rewriter.model import Instance
from tests.tiny import tiny_model

pytestmark = pytest.mark.slow
PREDICT = "/v1/models/rewriter:predict"
ASKED = {"query": "那它一天吃几次", "history_summary": "用户正在了解虾青素软胶囊", "tenant_id": "fivedoctors"}


class Served(NamedTuple):
    http: httpx.Client
    folder: Path
    process: "subprocess.Popen[bytes]"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tiny_model(tmp_path_factory.mktemp("model"))
    process = subprocess.Popen(
        [sys.executable, "-m", "serving.rewriter", "--model", str(folder), "--port", "0"], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        url = orjson.loads(process.stdout.readline())["rewriter"]
        with httpx.Client(base_url=url, trust_env=False, timeout=30) as http:
            yield Served(http, folder, process)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_it_writes_what_evaluation_would_have_measured(served: Served) -> None:
    answer = served.http.post(PREDICT, json={"instances": [ASKED]}).json()

    [written] = Student.load(served.folder).write([Instance.model_validate(ASKED)])
    assert answer["predictions"][0]["rewritten_query"] == written.text


def test_questions_asked_at_once_get_the_answers_they_get_alone(served: Served) -> None:
    asked = [ASKED | {"query": f"一天吃{number}次"} for number in range(24)]

    def ask(instance: dict[str, str]) -> str:
        return str(
            served.http.post(PREDICT, json={"instances": [instance]}).json()["predictions"][0]["rewritten_query"]
        )

    alone = [ask(instance) for instance in asked]
    with ThreadPoolExecutor(12) as pool:
        together = list(pool.map(ask, asked))

    assert together == alone
    assert len(set(alone)) > 1


def test_a_version_names_the_bytes_that_answered(served: Served, tmp_path: Path) -> None:
    from qinglan.lineage.digests import digest

    version = served.http.post(PREDICT, json={"instances": [ASKED]}).json()["predictions"][0]["model_version"]

    assert digest(served.folder).startswith(version)
    assert not digest(tiny_model(tmp_path, seed=2)).startswith(version)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"instances": []}, "1 to 256"),
        ({"questions": [ASKED]}, "instances"),
        ({"instances": [ASKED | {"query": " "}]}, "instances[0]: query"),
        (
            {"instances": [ASKED, ASKED | {"tenant_id": "chengla"}]},
            "instances[1]: this model was trained for fivedoctors",
        ),
        ({"instances": [ASKED | {"history_summary": "虾青素" * 600}]}, "tokens; the model reads"),
        ({"instances": [ASKED | {"model": "x"}]}, "instances[0]: model"),
    ],
)
def test_a_question_that_cannot_be_answered_says_why(served: Served, body: dict[str, object], said: str) -> None:
    answer = served.http.post(PREDICT, json=body)

    assert answer.status_code == 400
    assert said in answer.json()["error"]


def test_a_refused_question_is_a_line_in_the_log_and_no_traceback() -> None:
    from kserve.errors import InvalidInput

    for error, said in ((InvalidInput("no question"), "refused: "), (OSError("x"), "Exception:")):
        record = logging.LogRecord("kserve", logging.ERROR, "", 0, "Exception:", (), (type(error), error, None))

        assert in_a_line(record)
        assert record.getMessage().startswith(said)
        assert bool(record.exc_info) == isinstance(error, OSError)


def test_health_and_the_second_protocol_are_kserves_own(served: Served) -> None:
    assert served.http.get("/v2/health/ready").json() == {"ready": True}
    assert served.http.get("/v1/models/rewriter").json() == {"name": "rewriter", "ready": True}


def test_a_folder_that_is_no_model_ends_with_what_to_do(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "serving.rewriter", "--model", str(tmp_path), "--port", "0"],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip

    assert ended.returncode == 3
    assert "written by the sft or ppo stage" in ended.stderr


@pytest.mark.parametrize("broken", ["model.safetensors", "config.json"])
def test_a_model_that_is_not_whole_is_named_with_what_to_do(tmp_path: Path, broken: str) -> None:
    folder = tiny_model(tmp_path / "model")
    (folder / broken).write_bytes((folder / broken).read_bytes()[:100])

    with pytest.raises(DataError, match=r"no whole model .* Copy it again"):
        Student.load(folder)


def test_a_server_that_is_told_to_stop_ends_well(served: Served) -> None:
    served.process.send_signal(signal.SIGTERM)

    assert served.process.wait(20) == 0
