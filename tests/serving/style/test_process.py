"""The style service as a process: under load it refuses in time, told to stop it answers first."""

import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from qinglan.style.model import StyleModel
from tests.serving.style.conftest import Serve, Served

pytestmark = pytest.mark.slow

V1 = "/v1/models/style:predict"
LONG = [{"text": f"{number}请按标签服用。" * 100} for number in range(256)]


def wait_for(served: Served, sample: str, least: float) -> None:
    deadline = time.monotonic() + 30
    while served.counted(sample) < least:
        assert time.monotonic() < deadline, f"{sample} never came to {least}"
        time.sleep(0.01)


def test_beyond_its_queue_it_refuses_with_when_to_ask_again(serve: Serve) -> None:
    with serve("--queue", "100", "--name", "tone") as served, ThreadPoolExecutor(1) as pool:
        path = "/v1/models/tone:predict"
        first = pool.submit(served.http.post, path, json={"instances": LONG})  # alone, so it is taken whole
        wait_for(served, "qinglan_style_texts_waiting", 100)

        second = served.http.post(path, json={"instances": LONG[:1]})

        assert (second.status_code, second.headers["retry-after"]) == (429, "1")
        assert "wait already, of 100 at most" in second.json()["error"]
        assert len(first.result().json()["predictions"]) == 256
        assert served.http.post(path, json={"instances": LONG[:1]}).status_code == 200
        assert served.counted('qinglan_style_requests_total{outcome="busy",protocol="v1"}') == 1


def test_told_to_stop_it_answers_every_request_that_it_took(serve: Serve) -> None:
    with serve() as served, ThreadPoolExecutor(32) as pool:
        asked = [{"instances": LONG[start : start + 8]} for start in range(0, 256, 8)]
        answers = [pool.submit(served.http.post, V1, json=body) for body in asked]  # each on a connection of its own
        wait_for(served, "qinglan_style_requests_under_way", 32)
        served.process.send_signal(signal.SIGTERM)

        expected = [
            one["confidence"] for one in StyleModel.load(served.folder).predict([one["text"] for one in LONG])
        ]
        got = [answer.result() for answer in answers]
        assert [one.status_code for one in got] == [200] * 32
        found = [prediction["confidence"] for one in got for prediction in one.json()["predictions"]]
        assert found == pytest.approx(expected, abs=1e-5)
        assert served.process.wait(20) == 0


@pytest.mark.parametrize(
    ("folder_is", "options", "said"),
    [
        ("missing", [], "no such folder"),
        ("empty", [], "written by the style"),
        ("whole", ["--engine", "onnx"], "onnx"),
    ],
)
def test_without_its_model_it_ends_with_what_to_do(
    folder: Path, tmp_path: Path, folder_is: str, options: list[str], said: str
) -> None:
    model = {"missing": tmp_path / "nothing", "empty": tmp_path, "whole": folder}[folder_is]

    ended = subprocess.run(
        [sys.executable, "-m", "serving.style", "--model", str(model), "--port", "0", *options],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip

    assert ended.returncode == 3
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.stdout == ""
