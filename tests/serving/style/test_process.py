"""The style service as a process: under load it refuses in time, told to stop it answers first."""

import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import orjson
import pytest

from qinglan.lineage.signing.trust import TRUST_FILE, ensure_keys
from qinglan.style.model import StyleModel
from tests.processes.forkserver import forked
from tests.releases.registered_release import make_release, use_keys
from tests.serving.persistent_clients import ask_until_nobody_listens
from tests.serving.style.conftest import Serve

pytestmark = pytest.mark.slow

V1 = "/v1/models/style:predict"
LONG = [{"text": f"{number}请按标签服用。" * 100} for number in range(256)]


def wait_for(count: Callable[[], float], least: float) -> None:
    deadline = time.monotonic() + 120
    while count() < least:
        assert time.monotonic() < deadline, f"it never came to {least}"
        time.sleep(0.01)


def test_beyond_its_queue_it_refuses_with_when_to_ask_again(serve: Serve) -> None:
    with serve("--queue", "1", "--name", "tone") as served, ThreadPoolExecutor(1) as pool:
        path = "/v1/models/tone:predict"
        first = pool.submit(served.http.post, path, json={"instances": LONG})  # alone, so it is taken whole
        wait_for(lambda: served.counted("qinglan_style_texts_waiting"), 1)

        second = served.http.post(path, json={"instances": LONG[:1]})

        assert (second.status_code, second.headers["retry-after"]) == (429, "1")
        assert "wait already, of 1 at most" in second.json()["error"]
        assert len(first.result().json()["predictions"]) == 256
        assert served.http.post(path, json={"instances": LONG[:1]}).status_code == 200
        assert served.requests("v1", "busy") == 1


def test_told_to_stop_it_answers_all_that_it_took_of_clients_that_keep_their_connections(serve: Serve) -> None:
    with serve() as served, ThreadPoolExecutor(32) as pool:
        port = served.http.base_url.port
        bodies = [orjson.dumps({"instances": [text]}) for text in LONG[:32]]
        clients = [pool.submit(ask_until_nobody_listens, port, V1, body) for body in bodies]
        wait_for(lambda: served.requests("v1", "answered"), 64)
        served.process.send_signal(signal.SIGTERM)
        answers = [client.result() for client in clients]

        assert served.process.wait(120) == 0
        expected = StyleModel.load(served.folder).predict([text["text"] for text in LONG[:32]])
        assert sum(map(len, answers)) >= 64
        assert any(answer.last for local in answers for answer in local)
        for local, right in zip(answers, expected, strict=True):
            for answer in local:
                assert answer.status == 200
                message = orjson.loads(answer.body)["predictions"][0]["confidence"]
                assert message == pytest.approx(right["confidence"], abs=1e-5)


@pytest.mark.parametrize(
    ("folder_is", "options", "message"),
    [
        ("missing", [], "no such folder"),
        ("empty", [], "written by the style"),
        ("whole", ["--engine", "onnx"], "onnx"),
    ],
)
def test_without_its_model_it_ends_with_what_to_do(
    folder: Path, tmp_path: Path, folder_is: str, options: list[str], message: str
) -> None:
    model = {"missing": tmp_path / "nothing", "empty": tmp_path, "whole": folder}[folder_is]

    ended = subprocess.run(
        forked("serving.style", "--model", str(model), "--port", "0", *options),
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip

    assert ended.returncode == 3
    assert message in ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.stdout == ""


def test_a_model_that_is_not_what_the_release_around_it_says_is_not_loaded(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = make_release(tmp_path / "other", use_keys(tmp_path / "keys", monkeypatch)).folder
    shutil.rmtree(release / "model")
    shutil.copytree(folder, release / "model")

    ended = subprocess.run(
        forked("serving.style", "--model", str(release / "model"), "--port", "0"),
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip

    assert ended.returncode == 8
    assert "not as in its release" in ended.stderr and "Traceback" not in ended.stderr


def test_where_a_signature_is_asked_for_a_bare_folder_ends_it(folder: Path, tmp_path: Path) -> None:
    ensure_keys(tmp_path / "keys")

    ended = subprocess.run(
        forked("serving.style", "--model", str(folder), "--port=0", "--trust", str(tmp_path / "keys" / TRUST_FILE)),
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip

    assert (ended.returncode, ended.stdout) == (8, "")
    assert "a signature is required (--trust)" in ended.stderr and "Traceback" not in ended.stderr
